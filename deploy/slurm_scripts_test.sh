#!/usr/bin/env bash
# slurm_scripts_test FOLDER: the scripts of deploy/slurm with stand-ins for vipu and for two clusters of Slurm, alpha and beta, that
# share one V-IPU controller. The stand-ins keep their state in files.
set -euo pipefail
scripts=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "error: $*"; exit 1; }

mkdir "$work/bin" "$work/partitions"
# vipu create|remove|get|list partition[s]: one file a partition; "down" stands for a controller that is away.
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
  create) (set -C; : >"$work/partitions/\$3") 2>/dev/null || { echo "create partition (\$3): failed. Partition \$3 already exists." >&2; exit 1; } ;;
  remove) rm "$work/partitions/\$3" 2>/dev/null || { echo "remove partition (\$3): failed. Partition \$3 does not exist." >&2; exit 1; } ;;
esac
END
printf '#!/bin/sh\necho "$*" >>"%s/syslog"\n' "$work" >"$work/bin/logger"
for cluster in alpha beta; do
  mkdir -p "$work/$cluster/bin" "$work/$cluster/state"
  # squeue: the lines "<job> <state>" of the file jobs; fails without it.
  cat >"$work/$cluster/bin/squeue" <<END
#!/bin/sh
cat "$work/$cluster/jobs" 2>/dev/null || { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
END
  # scontrol show config; comments of jobs go to the file comments.
  cat >"$work/$cluster/bin/scontrol" <<END
#!/bin/sh
[ "\$1" = show ] || { echo "\$*" >>"$work/$cluster/comments"; exit 0; }
printf 'Configuration data as of now\nClusterName             = %s\nStateSaveLocation       = %s\n' $cluster "$work/$cluster/state"
END
  printf 'PATH="%s/bin:%s/bin:$PATH"\nVIPU_IPUS_PER_HOST=2\nVIPU_CREATE_OPTIONS=--reconfigurable\nIPUOF_VIPU_API_HOST=h\nIPUOF_VIPU_API_PORT=1\n' \
    "$work/$cluster" "$work" >"$work/$cluster/slurm.env"
  : >"$work/$cluster/jobs"
done
chmod +x "$work"/bin/* "$work"/*/bin/*

# as_job CLUSTER JOB SCRIPT, as Slurm's controller calls it
as_job() { VIPU_SLURM_SETTINGS=$work/$1/slurm.env SLURM_JOB_ID=$2 SLURM_JOB_USER=alice SLURM_JOB_NUM_NODES=1 "$scripts/$3"; }
# with_timer CLUSTER SCRIPT, outside of any job
with_timer() { VIPU_SLURM_SETTINGS=$work/$1/slurm.env "$scripts/$2"; }
have() { ls "$work/partitions" | paste -sd ' '; }
expect() { [ "$(have)" = "$*" ] || fail "line ${BASH_LINENO[0]}: there are partitions $(have), not $*"; }
away() { touch "$work/down"; }
back() { rm "$work/down"; }

# Jobs 1 and 2 end while the controller is away: their epilogs fail.
printf '1 RUNNING\n2 RUNNING\n3 RUNNING\n4 COMPLETING\n5 PENDING\n' >"$work/alpha/jobs"
for job in 1 2 3 4 5; do as_job alpha $job prolog || fail "prolog of job $job"; done
away
! as_job alpha 1 epilog || fail "an epilog that reached nobody succeeded"
back
printf '2 CANCELLED\n3 RUNNING\n4 COMPLETING\n5 PENDING\n6 CONFIGURING\n' >"$work/alpha/jobs"

# Partitions that others made: by hand, by earlier scripts, by another cluster that has the same number of a job.
for name in others slurm_7 slurm_900 slurm_alpha_1000 slurm_beta_1 slurm_tests; do touch "$work/partitions/$name"; done
others="slurm_alpha_1000 slurm_alpha_3 slurm_alpha_4 slurm_alpha_5 slurm_alpha_6 slurm_beta_1 slurm_tests"

# A job of which Slurm says nothing, or that it has ended, has no partition any more; the next prolog sees to it.
as_job alpha 6 prolog || fail "prolog of job 6"
expect others slurm_7 slurm_900 $others
grep -q "orphan slurm_alpha_1: " "$work/syslog" || fail "nothing in the system log: $(cat "$work/syslog")"

# If Slurm or the controller cannot be asked, no job counts as ended.
rm "$work/alpha/jobs"
with_timer alpha remove-orphans || fail "without Slurm"
away && : >"$work/alpha/jobs"
with_timer alpha remove-orphans || fail "without the controller"
back
expect others slurm_7 slurm_900 $others
printf '3 RUNNING\n4 COMPLETING\n5 PENDING\n6 CONFIGURING\n' >"$work/alpha/jobs"

# A name that somebody else has taken fails the job, says why, and stays with whoever has it: also when the job's epilog runs.
! as_job alpha 1000 prolog || fail "a prolog took a partition that it had not made"
grep -q 'slurm_alpha_1000 already exists' "$work/alpha/comments" || fail "the job's comment does not say why: $(cat "$work/alpha/comments")"
as_job alpha 1000 epilog || fail "epilog of a job without a partition"
as_job alpha 7 epilog && as_job alpha 900 epilog || fail "epilog of a job without a partition"
expect others slurm_7 slurm_900 $others

# A second try of a job begins with a partition of its own; an epilog may come twice.
as_job alpha 3 prolog || fail "second prolog of job 3"
for job in 3 4 5 6 6; do as_job alpha $job epilog || fail "epilog of job $job"; done
expect others slurm_7 slurm_900 slurm_alpha_1000 slurm_beta_1 slurm_tests
rm "$work"/partitions/*

# Without a place for its records the cluster takes no partition, because it could not give it back.
mv "$work/alpha/state" "$work/alpha/away" && touch "$work/alpha/state"
! as_job alpha 8 prolog || fail "a prolog that could not write its record succeeded"
rm "$work/alpha/state" && mv "$work/alpha/away" "$work/alpha/state"
expect

# The tasks of a job find its partition, also by a prefix of the site's own, and those of a job that began under the scripts that
# named partitions slurm_<job id>.
of_task() { as_job "$@" task-prolog | sed -n 's/^export IPUOF_VIPU_API_PARTITION_ID=//p'; }
[ "$(of_task beta 9)" = slurm_beta_9 ] || fail "the tasks of job 9 get partition '$(of_task beta 9)'"
[ "$(SLURM_CLUSTER_NAME=alpha of_task beta 9)" = slurm_alpha_9 ] || fail "SLURM_CLUSTER_NAME does not count"
[ "$(IPUOF_VIPU_API_PARTITION_ID=slurm_9 of_task beta 9)" = slurm_9 ] || fail "the tasks of an older job lose their partition"
[ "$(IPUOF_VIPU_API_PARTITION_ID=slurm_8 of_task beta 9)" = slurm_beta_9 ] || fail "a job takes the partition of its submitter's"
echo 'VIPU_PARTITION_PREFIX=slurm_' >>"$work/beta/slurm.env"
[ "$(of_task beta 9)" = slurm_9 ] || fail "VIPU_PARTITION_PREFIX does not count"
as_job beta 9 prolog && expect slurm_9 && as_job beta 9 epilog && expect || fail "VIPU_PARTITION_PREFIX does not count for scripts"
sed -i '/PREFIX/d' "$work/beta/slurm.env"

# After an upgrade the administrator names the cluster to which partitions with the older names belong; they end with their jobs.
touch "$work"/partitions/slurm_{11,12,13}
printf '11 RUNNING\n12 RUNNING\n14 RUNNING\n' >"$work/alpha/jobs"
with_timer alpha adopt-partitions >"$work/adopted" || fail "adopt-partitions"
[ "$(paste -sd ' ' "$work/adopted")" = "slurm_11 slurm_12" ] || fail "adopted: $(cat "$work/adopted")"
as_job alpha 11 epilog || fail "epilog of a job with an adopted partition"
: >"$work/alpha/jobs"
with_timer alpha remove-orphans
expect slurm_13
rm "$work"/partitions/*

# Two clusters, a hundred jobs each with the same numbers, while the controller is away for every third epilog: nobody loses a
# partition, and what is left in the end is nobody's.
touch "$work"/partitions/slurm_{7,900} "$work/partitions/slurm_beta_300"
list_jobs() { # CLUSTER FIRST LAST: those run, and all before have ended
  seq -f '%g RUNNING' "$2" "$3" >"$work/$1/jobs"
}
for job in $(seq 1 100); do
  for cluster in alpha beta; do
    list_jobs $cluster $((job > 5 ? job - 5 : 1)) "$job"
    as_job $cluster "$job" prolog || fail "prolog of job $job of $cluster"
  done
  for other in $(seq $((job > 5 ? job - 5 : 1)) "$job"); do
    [ -e "$work/partitions/slurm_alpha_$other" ] && [ -e "$work/partitions/slurm_beta_$other" ] ||
      fail "job $other lost its partition when job $job began; there are: $(have)"
  done
  [ "$job" -gt 5 ] || continue
  for cluster in alpha beta; do
    [ $((job % 3)) != 0 ] || away
    as_job $cluster $((job - 5)) epilog || [ -e "$work/down" ] || fail "epilog of job $((job - 5)) of $cluster"
    [ ! -e "$work/down" ] || back
  done
done
for cluster in alpha beta; do
  : >"$work/$cluster/jobs"
  with_timer $cluster remove-orphans
done
expect slurm_7 slurm_900 slurm_beta_300
echo "orphans are found and removed, and nobody else's partitions"
