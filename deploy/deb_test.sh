#!/usr/bin/env bash
# deb_test PACKAGE.deb PACKAGE-dev.deb python3-poptorch.deb KNOWN_HOLES: looks into the Debian packages.
set -euo pipefail
deb=$1 dev_deb=$2 poptorch_deb=$3 known_holes=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root dev=$work/dev poptorch=$work/poptorch
dpkg-deb -R "$deb" "$root"
dpkg-deb -R "$dev_deb" "$dev"
dpkg-deb -R "$poptorch_deb" "$poptorch"
bad=0
fail() { echo "error: $*"; bad=1; }

version=$("$root/usr/bin/vipu" --version)
[ "version: $(dpkg-deb -f "$deb" Version)" = "$version" ] || fail "package of version $(dpkg-deb -f "$deb" Version) holds vipu of '$version'"

for file in etc/vipu/vipu-{server,cli}.hcl etc/vipu/slurm.env etc/default/vipu-agent usr/share/doc/virtual-ipu-pod/copyright \
  lib/systemd/system/vipu-{server.service,agent.service,agent@.service,.service.d/10-common.conf} lib/systemd/system/vipu-agents.slice; do
  [ -f "$root/$file" ] || fail "/$file is not in the package"
done
for file in "$root"/etc/*/*; do
  grep -qx "${file#"$root"}" "$root/DEBIAN/conffiles" || fail "${file#"$root"} is not a conffile, so an upgrade would overwrite it"
done
for program in "$root"/usr/bin/*; do
  name=${program##*/}
  # Examples, and programs that only poprun starts.
  [[ $name =~ ^(fashion_mnist|first_program|hands_on|gc-get-attributes-for-all-devices|poprun_numa_wrapper|poprun_supervisor)$ ]] || ls "$root"/usr/share/man/man?/"$name".?.gz >/dev/null 2>&1 || fail "$name has no manual page"
done
for tool in vipu vipu-admin vpod poprun $(cd "$root/usr/bin" && ls -d gc-* | grep -v gc-get-attributes); do
  for file in usr/share/{bash-completion/completions/$tool,zsh/vendor-completions/_$tool,fish/vendor_completions.d/$tool.fish}; do
    [ -f "$root/$file" ] || fail "/$file is not in the package"
  done
done
# Slurm's configuration names scripts that are there.
for script in $(sed -n 's/^[A-Za-z]*log[A-Za-z]*=//p' "$root"/usr/share/doc/virtual-ipu-pod/examples/slurm*.conf); do
  [ -x "$root$script" ] || fail "$script is named in an example for Slurm and not in the package"
done
# Units start what is there.
for program in $(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$root"/lib/systemd/system/*.service); do
  [ -x "$root$program" ] || fail "$program is started by a unit and not in the package"
done
foreign=$(dpkg-deb -c "$deb" | awk '$2 != "root/root" || substr($1, 6, 1) == "w" || substr($1, 9, 1) == "w"')
[ -z "$foreign" ] || fail "not root's alone: $foreign"

# The controller understands its configuration.
"$root/usr/bin/vipu-server" --config "$root/etc/vipu/vipu-server.hcl" --storage "$root/check.db" --log-file "$root/check.log" --init ||
  fail "vipu-server refuses its configuration"

modules=$root/usr/lib/python3/dist-packages
PYTHONPATH=$modules /usr/bin/python3 -c 'import gcipuinfo; gcipuinfo.gcipuinfo' || fail "the distribution's Python cannot use gcipuinfo"
PYTHONPATH=$modules /usr/bin/python3 -c 'import vpod; vpod.Graph()' || fail "the distribution's Python cannot use vpod"

# What needs PyTorch is in a package of its own, which depends on it.
torch_modules=$poptorch/usr/lib/python3/dist-packages
[ ! -e "$modules/poptorch" ] || fail "poptorch is in the package that does not depend on PyTorch"
for file in __init__.py __init__.pyi py.typed doctor.py check.py _capture/capture.py; do
  [ -f "$torch_modules/poptorch/$file" ] || fail "poptorch/$file is not in the package"
done
leftovers=$(find "$torch_modules" -name '*_test.py' -o -name _testing)
[ -z "$leftovers" ] || fail "tests are in the package: $leftovers"
for file in copyright examples/{README.md,basics.py,pipeline.py,images.py}; do
  [ -f "$poptorch/usr/share/doc/python3-poptorch/$file" ] || fail "/usr/share/doc/python3-poptorch/$file is not in the package"
done
PYTHONPATH=$torch_modules/poptorch /usr/bin/python3 -c 'import poptorch_core; poptorch_core.operators()' || fail "the distribution's Python cannot use poptorch_core"
if /usr/bin/python3 -c 'import torch' 2>/dev/null; then
  PYTHONPATH=$torch_modules /usr/bin/python3 -c 'import poptorch; poptorch.Options()' || fail "the distribution's Python cannot use poptorch"
else
  echo "SKIPPED: python3-torch is not installed (deploy/packages-pytorch.txt): the package python3-poptorch is not imported"
fi

depends_of() { dpkg-deb -f "$1" Depends | tr ',' '\n' | awk '{print $1}'; }
depends_of "$poptorch_deb" | grep -qx python3-torch || fail "python3-poptorch does not depend on python3-torch"
! depends_of "$deb" | grep -q torch || fail "the package depends on PyTorch"

# Every library that a program links is in a package of Depends: check_libraries PACKAGE.deb FILE…
check_libraries() {
  local depends linked library path package names
  depends=$(depends_of "$1")
  shift
  linked=$(ldd "$@")
  ! grep 'not found' <<<"$linked" || fail "libraries are missing here"
  for library in $(objdump -p "$@" | awk '$1 == "NEEDED" {print $2}' | sort -u); do
    path=$(awk -v library="$library" '$1 == library && $2 == "=>" {print $3; exit}' <<<"$linked")
    [ -n "$path" ] || continue # the dynamic linker itself
    path=$(realpath "$path")
    # dpkg knows some files by the name that they had before /lib became a link.
    package=$({ dpkg -S "$path" || dpkg -S "${path#/usr}"; } 2>/dev/null | cut -d : -f 1)
    names=$(dpkg-query -W -f '${Package}, ${Provides}' "$package" | tr ',' '\n' | awk 'NF {print $1}')
    grep -qxF "$names" <<<"$depends" || fail "$library of package $package is linked and not in Depends"
  done
}
check_libraries "$deb" "$root"/usr/bin/* "$root"/usr/lib/libvpod.so.1 "$modules"/*.so "$modules"/vpod/*.so
check_libraries "$poptorch_deb" "$torch_modules"/poptorch/*.so

# The known holes of what the package depends on were judged.
# "libspdlog1.10 spdlog", then "libspdlog1.10-fmt9 spdlog": the source of each installed package and of each name it provides.
sources=$(dpkg-query -W -f '${db:Status-Status}, ${source:Package}, ${Package}, ${Provides}\n' |
  awk -F ', ' '$1 == "installed" {for (i = 3; i <= NF; ++i) {split($i, name, " "); if (name[1] != "") print name[1], $2}}')
for package in $(depends_of "$deb") $(depends_of "$dev_deb") $(depends_of "$poptorch_deb"); do
  source=$(awk -v package="$package" '$1 == package {print $2; exit}' <<<"$sources")
  [ -n "$source" ] || continue # one of the two packages, or a choice that is not installed
  grep -q "^$source " "$known_holes" || fail "$package is in Depends, and its source package $source has no row in deploy/known-holes.txt"
done

# What the -dev package finds is there, and of this version.
for file in lib/libvpod.so lib/cmake/vpod/vpodConfig{,Version}.cmake lib/pkgconfig/vpod.pc share/doc/virtual-ipu-pod-dev/copyright; do
  [ -f "$dev/usr/$file" ] || [ -L "$dev/usr/$file" ] || fail "/usr/$file is not in the -dev package"
done
[ -f "$root/usr/lib/$(readlink "$dev/usr/lib/libvpod.so")" ] || fail "the link to the library leads nowhere"
[ "$(PKG_CONFIG_PATH=$dev/usr/lib/pkgconfig pkg-config --modversion vpod)" = "$(dpkg-deb -f "$deb" Version)" ] || fail "pkg-config says another version"

# All headers can be included, and what they include is in a package of Depends, or comes with the compiler.
(cd "$dev/usr/include/vpod" && find . -name '*.h' -printf '#include "%P"\n' -o -name '*.hpp' -printf '#include "%P"\n') >"$work/all.cc"
g++ -std=c++20 -fsyntax-only -MD -MF "$work/all.d" -I "$dev/usr/include/vpod" "$work/all.cc" || fail "a header of the -dev package does not compile"
for package in $(tr ' ' '\n' <"$work/all.d" | grep ^/usr/ | xargs realpath | xargs dpkg -S | cut -d : -f 1 | sort -u); do
  case $package in libc6-dev | libstdc++-*-dev | libgcc-*-dev | linux-libc-dev) continue ;; esac
  depends_of "$dev_deb" | grep -qx "$package" || fail "headers of package $package are included, and it is not in Depends of the -dev package"
done

if command -v lintian >/dev/null; then
  lintian --fail-on error "$deb" "$dev_deb" "$poptorch_deb" || fail "lintian finds errors"
fi
exit $bad
