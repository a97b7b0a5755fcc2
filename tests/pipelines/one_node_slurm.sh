#!/usr/bin/env bash
# Slurm on one node, and on it the workflow's .test case by profiles/slurm, and the array of pipelines/slurm.
#
#   bash tests/pipelines/one_node_slurm.sh FOLDER
#
# For a machine that may be changed, a container or a runner of CI: it needs root, and Debian's packages,
#   apt-get install -y slurm-wlm munge
# and genoformer, snakemake and snakemake-executor-plugin-slurm on the PATH. Slurm is set up in FOLDER and ended with
# the script. The exit code is 0 if all of it came out, and if a job that was killed went on where it was. TARGETS names
# what the workflow makes, if not everything.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mkdir -p "${1:?give a folder to work in}" && cd "$1" && pwd)
host=$(hostname -s)
cores=$(getconf _NPROCESSORS_ONLN)
export SLURM_CONF=$folder/etc/slurm.conf
mkdir -p "$folder"/{etc,state,spool,log,run}

say() { printf '%(%H:%M:%S)T one_node_slurm: %s\n' -1 "$*"; }

for needed in slurmctld slurmd munged sbatch genoformer snakemake; do
    command -v "$needed" >/dev/null || { say "$needed is not there"; exit 2; }
done

# ---- munge and Slurm, as root, without accounting

# Snakemake takes SLURM_* out of the environment of jobs, so srun looks where it always does.
default=/etc/slurm/slurm.conf
if [ -e $default ] && [ ! -L $default ]; then say "$default is there: this machine has a Slurm"; exit 2; fi
mkdir -p /etc/slurm
ln -sf "$SLURM_CONF" $default

started=()
end() {
    rm -f $default
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap end EXIT

dd if=/dev/urandom of="$folder/etc/munge.key" bs=1 count=128 status=none
chmod 400 "$folder/etc/munge.key"
munged --foreground --force --key-file="$folder/etc/munge.key" --socket="$folder/run/munge.socket" \
    --pid-file="$folder/run/munged.pid" --seed-file="$folder/run/munged.seed" --log-file="$folder/log/munged.log" &
started+=($!)

cat >"$SLURM_CONF" <<END
ClusterName=one
SlurmctldHost=$host
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
MaxArraySize=100
JobRequeue=1
NodeName=$host CPUs=$cores RealMemory=$(($(awk '/MemTotal/ {print $2}' /proc/meminfo) / 1024 - 500)) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
END

slurmctld -D &
started+=($!)
slurmd -D &
started+=($!)
for _ in $(seq 120); do
    if [ "$(sinfo --noheader --format=%t 2>/dev/null)" = idle ]; then break; fi
    sleep 1
done
sinfo
[ "$(sinfo --noheader --format=%t)" = idle ] || { say "Slurm did not start; see $folder/log"; exit 1; }

# ---- the workflow

case=$folder/pipelines/case
rm -rf "$folder/pipelines" "$folder/data"
mkdir -p "$case"
cp -r "$root/pipelines/.test/config" "$case"
cp -r "$root/data" "$folder/data"
say "workflow"
# shellcheck disable=SC2086 # targets are words
snakemake --snakefile "$root/pipelines/workflow/Snakefile" --directory "$case" \
    --profile "$root/pipelines/profiles/slurm" --jobs 2 --latency-wait 10 \
    --slurm-init-seconds-before-status-checks 5 --slurm-status-command squeue \
    ${TARGETS:-annotate variants}
find "$case/results" -type f | sort

# ---- the array: one job is killed, and only what is missing is submitted again

say "array"
cd "$folder"
rm -rf array
mkdir array
script=$root/pipelines/slurm/annotate.sbatch
options=(--parsable --cpus-per-task=1 --mem=1500 --no-requeue)
export PREDICT="--window 5000"
first=$(sbatch "${options[@]}" --array=1-2 "$script" data/lambda.fa.gz array/lambda)
until [ -e array/lambda.shards/1-of-2.h5.part ] || [ -e array/lambda.shards/1-of-2.h5 ]; do sleep 0.2; done
scancel --signal=KILL --full "${first}_1" || true
while [ "$(squeue --noheader --jobs="$first" 2>/dev/null | wc -l)" -gt 0 ]; do sleep 1; done
ls array/lambda.shards
export SHARDS=2
again=$(sbatch "${options[@]}" --array=1 "$script" data/lambda.fa.gz array/lambda)
last=$(sbatch "${options[@]}" --dependency="afterok:$again" "$script" data/lambda.fa.gz array/lambda)
while [ "$(squeue --noheader --jobs="$again,$last" 2>/dev/null | wc -l)" -gt 0 ]; do sleep 1; done
cat genoformer-"$again"-*.log
if grep -q "no interrupted run" genoformer-"$again"-*.log; then say "the killed job began anew"; exit 1; fi
unset PREDICT SHARDS
ls array
genoformer inspect array/lambda.h5 --verify
[ -e array/lambda.gff.gz ] && [ -e array/lambda.faa.gz ] && [ ! -e array/lambda.shards ]
say "done"
