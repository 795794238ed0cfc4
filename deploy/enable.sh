# Source this file: puts the tools on PATH and, when a POD is up, points them at it.
#   source deploy/enable.sh
_vpod_top=$(cd "$(dirname "${BASH_SOURCE[0]:-${(%):-%x}}")/.." && pwd)
case ":$PATH:" in
  *":$_vpod_top/dist/bin:"*) ;;
  *) export PATH="$_vpod_top/dist/bin:$PATH" ;;
esac
if [ -x "$_vpod_top/dist/bin/vpod" ]; then
  eval "$("$_vpod_top/dist/bin/vpod" env 2>/dev/null)"
else
  echo "enable.sh: the tools are not built yet; run deploy/quickstart or deploy/build" >&2
fi
unset _vpod_top
