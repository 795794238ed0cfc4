#!/usr/bin/env bash
# slurm_scripts_test FOLDER: the scripts of deploy/slurm with stand-ins for Slurm and vipu that keep their state in files.
set -euo pipefail
scripts=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }

mkdir "$work/bin" "$work/partitions"
# vipu list|get|create|remove partition[s]: one file a partition; "down" stands for a controller that is away.
cat >"$work/bin/vipu" <<END
#!/bin/sh
[ ! -e "$work/down" ] || { echo "vipu: error: Cannot connect to the V-IPU server." >&2; exit 1; }
case "\$1" in
  list)
    echo " Partition | Cluster | ILDs | GW Routing | ILD Routing | Size | GCDs | State"
    echo "----------------"
    for name in \$(ls "$work/partitions"); do echo " \$name | c4 | 1 | DEFAULT | DNC | 2 | 1 | ACTIVE"; done
    echo "----------------"
    ;;
  get) [ -e "$work/partitions/\$3" ] ;;
  create) [ ! -e "$work/partitions/\$3" ] && touch "$work/partitions/\$3" ;;
  remove) rm "$work/partitions/\$3" 2>/dev/null || { echo "Partition \$3 does not exist." >&2; exit 1; } ;;
esac
END
# squeue: the lines "<job> <state>" of the file jobs; fails without it.
cat >"$work/bin/squeue" <<END
#!/bin/sh
cat "$work/jobs" 2>/dev/null || { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
END
printf '#!/bin/sh\nexit 0\n' >"$work/bin/scontrol"
printf '#!/bin/sh\necho "$*" >>"%s/syslog"\n' "$work" >"$work/bin/logger"
chmod +x "$work"/bin/*
printf 'PATH="%s:$PATH"\nVIPU_IPUS_PER_HOST=2\nVIPU_CREATE_OPTIONS=--reconfigurable\n' "$work/bin" >"$work/slurm.env"
export VIPU_SLURM_SETTINGS=$work/slurm.env
as_job() { SLURM_JOB_ID=$1 SLURM_JOB_USER=alice SLURM_JOB_NUM_NODES=1 "$scripts/$2"; }
have() { ls "$work/partitions" | paste -sd ' '; }

# Jobs 1 and 2 end while the controller is away: their epilogs fail.
printf '1 RUNNING\n2 RUNNING\n3 RUNNING\n4 COMPLETING\n5 PENDING\n' >"$work/jobs"
for job in 1 2 3 4 5; do as_job $job prolog || fail "prolog of job $job"; done
touch "$work/partitions/slurm_tests" "$work/partitions/others" # not ours
touch "$work/down"
! as_job 1 epilog || fail "an epilog that reached nobody succeeded"
rm "$work/down"
printf '2 CANCELLED\n3 RUNNING\n4 COMPLETING\n5 PENDING\n6 CONFIGURING\n' >"$work/jobs"

# A job of which Slurm says nothing, or that it has ended, has no partition any more; the next prolog sees to it.
as_job 6 prolog || fail "prolog of job 6"
[ "$(have)" = "others slurm_3 slurm_4 slurm_5 slurm_6 slurm_tests" ] || fail "left: $(have)"
grep -q "orphan slurm_1 " "$work/syslog" || fail "nothing in the system log: $(cat "$work/syslog")"

# If Slurm or the controller cannot be asked, no job counts as ended.
rm "$work/jobs"
"$scripts/remove-orphans" || fail "without Slurm"
[ "$(have)" = "others slurm_3 slurm_4 slurm_5 slurm_6 slurm_tests" ] || fail "left without Slurm: $(have)"
touch "$work/down" && : >"$work/jobs"
"$scripts/remove-orphans" || fail "without the controller"
rm "$work/down"
[ "$(have)" = "others slurm_3 slurm_4 slurm_5 slurm_6 slurm_tests" ] || fail "left without the controller: $(have)"
echo "orphans are found and removed"
