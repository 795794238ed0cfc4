# Source this file: puts the tools on PATH and the modules on PYTHONPATH, makes the shell complete the command lines of vipu and vipu-admin and, when VPOD_HOME holds a POD, running or stopped, points them at it.
#   source deploy/enable.sh
_vpod_top=$(cd "$(dirname "${BASH_SOURCE[0]:-${(%):-%x}}")/.." && pwd)
case ":$PATH:" in
  *":$_vpod_top/dist/bin:"*) ;;
  *)
    export PATH="$_vpod_top/dist/bin:$PATH"
    export MANPATH="$_vpod_top/dist/share/man:${MANPATH:-}" # the empty part stands for the system's pages
    ;;
esac
case ":${PYTHONPATH:-}:" in
  *":$_vpod_top/dist/python:"*) ;;
  *) export PYTHONPATH="$_vpod_top/dist/python${PYTHONPATH:+:$PYTHONPATH}" ;; # modules of the distribution's python3
esac
# Public scripts look for these variables and forward them, as the SDK's own file sets them. Open MPI is the distribution's.
export POPLAR_SDK_ENABLED="$_vpod_top/dist"
if _vpod_mpirun=$(command -v mpirun); then
  export OPAL_PREFIX="${OPAL_PREFIX:-$(dirname "$(dirname "$(readlink -f "$_vpod_mpirun")")")}"
fi
unset _vpod_mpirun
case ":${LD_LIBRARY_PATH:-}:" in
  *":$_vpod_top/dist/lib:"*) ;;
  *)
    export CPATH="$_vpod_top/dist/include${CPATH:+:$CPATH}"
    export PKG_CONFIG_PATH="$_vpod_top/dist/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
    export LIBRARY_PATH="$_vpod_top/dist/lib${LIBRARY_PATH:+:$LIBRARY_PATH}"
    export LD_LIBRARY_PATH="$_vpod_top/dist/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    ;;
esac
# Completion, where the shell has it.
if [ -n "${BASH_VERSION:-}" ]; then
  _vpod_completions=$_vpod_top/dist/share/bash-completion/completions
elif type compdef >/dev/null 2>&1; then
  _vpod_completions=$_vpod_top/dist/share/zsh/site-functions
else
  _vpod_completions=/nonexistent
fi
for _vpod_tool in $(ls "$_vpod_completions" 2>/dev/null); do
  . "$_vpod_completions/$_vpod_tool"
done
unset _vpod_completions _vpod_tool
if [ -x "$_vpod_top/dist/bin/vpod" ]; then
  eval "$("$_vpod_top/dist/bin/vpod" env 2>/dev/null)"
else
  echo "enable.sh: the tools are not built yet; run deploy/quickstart or deploy/build" >&2
fi
unset _vpod_top
