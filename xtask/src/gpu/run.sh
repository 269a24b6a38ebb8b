#!/bin/sh
# Runs what a machine with a GPU can show, and writes it all into one JSON file.
#
#   sh run.sh            on the first CUDA device; the result is out/result.json
#
# BACKEND=cuda:1     another device; opencl for the first OpenCL device
# SHORT=1            few and short measurements, to see that it works
# OUT=FOLDER         where captures, caches, logs and result.json go
# LIMIT=SECONDS      for each part; what takes longer is killed and recorded as failed (600)
# BUDGET=SECONDS     for all: what would begin later is recorded as failed, so that there is a result in time
# JOBS=N             cases, and then test programs, at a time (a quarter of the CPUs); benches run alone
#
# A part that fails is recorded and the rest goes on. The exit status is 0 if none failed.
# Needs: a POSIX shell, cmp, gzip, find, grep, and the tools of coreutils, sed and awk. No network, no Python, no compiler.

set -u
kit=$(cd "$(dirname "$0")" && pwd) || exit 1
backend=${BACKEND:-cuda}
out=${OUT:-$kit/out}
limit=${LIMIT:-600}
budget=${BUDGET:-86400}
start=$(date +%s)
jobs=${JOBS:-$((($(nproc) + 3) / 4))}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
rm -rf "$out/parts" "$out/captures" "$out/result.json"
mkdir -p "$out/parts" "$out/captures"
# Nothing is left in the user's home.
export SHADELINE_CACHE="$out/kernels" POCL_CACHE_DIR="${POCL_CACHE_DIR:-$out/pocl}" CUDA_CACHE_PATH="$out/cuda"
program=$kit/shadeline
if [ -f "$program.gz" ]; then
    program=$out/shadeline
    gzip -dc "$kit/shadeline.gz" >"$program" && chmod +x "$program" || exit 1
fi
# Files of keys that others can read are refused, and copies of the kit do not keep modes.
find "$kit/cases" -name '*.key' -exec chmod 600 {} + || exit 1
share=$kit/shadeline/data/routes.txt.gz
full=$kit/full.txt.gz
[ -f "$full" ] || full=$share
loads=ipv4,ipv6,l2
[ -d "$kit/names" ] && loads=$loads,names

if [ -n "${SHORT:-}" ]; then
    short=true
    quick=--quick
    device="--rounds 1 --seconds 0.05 --routes $share --rules none"
    ipsec="--rounds 1 --packets 65536 --workers 1"
    paper="--rounds 1 --seconds 0.01"
    update="--rounds 1 --changes 20 --routes $share"
    shade="--rounds 1 --seconds 0.01 --keys 70000 --stations 100000 --prefixes 60000 --routes $share"
else
    short=false
    quick=
    device="--seconds 0.2 --routes $full --rules $kit/rules"
    ipsec="--packets 524288 --workers 4,12"
    paper="--seconds 0.1"
    update="--routes $full"
    shade="--seconds 0.1 --routes $full"
fi

# A file as the inside of a JSON string; folders of this machine are OUT and KIT.
escaped() {
    tr -d '\000-\010\013-\037\177' <"$1" |
        sed -e "s|$out|OUT|g" -e "s|$kit|KIT|g" -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/	/\\t/g' | awk 'BEGIN { ORS = "\\n" } { print }'
}

# A word as a JSON string.
quoted() {
    printf '%s' "$1" >"$out/word"
    printf '"%s"' "$(escaped "$out/word" | sed 's/\\n$//')"
}

failed=0
total=0

# note NAME STATUS SECONDS FILE-OF-STDOUT FILE-OF-STDERR COMMAND: adds a part to the result.
note() {
    total=$((total + 1))
    [ "$2" -eq 0 ] || failed=$((failed + 1))
    printf '%s: %s\n' "$1" "$([ "$2" -eq 0 ] && echo ok || echo "failed ($2)")"
    {
        [ "$total" -eq 1 ] || printf ',\n'
        printf '    {\n      "name": %s,\n      "command": %s,\n' "$(quoted "$1")" "$(quoted "$6")"
        printf '      "status": %s,\n      "seconds": %s,\n' "$2" "$3"
        # What succeeded and looks like JSON is JSON; everything else is text.
        case "$2 $(head -c 1 "$4")" in
        '0 {' | '0 [')
            printf '      "json": '
            sed -e '2,$s/^/      /' -e "s|$out|OUT|g" -e "s|$kit|KIT|g" "$4"
            printf ',\n'
            ;;
        *) printf '      "stdout": "%s",\n' "$(escaped "$4")" ;;
        esac
        printf '      "stderr": "%s"\n    }' "$(escaped "$5")"
    } >>"$out/parts.json"
}

# part NAME ARGUMENTS…: runs the program and notes how it went.
part() {
    name=$1
    shift
    begun=$(date +%s)
    if [ $((begun - start)) -ge "$budget" ]; then
        : >"$out/parts/$name.out"
        echo "not begun: the time was up" >"$out/parts/$name.err"
        status=125
    else
        timeout -k 10 "$limit" "$program" "$@" >"$out/parts/$name.out" 2>"$out/parts/$name.err"
        status=$?
    fi
    note "$name" "$status" $(($(date +%s) - begun)) \
        "$out/parts/$name.out" "$out/parts/$name.err" "shadeline $*"
}

# behind_first FILE: how many packets the stages behind the first one saw, by the table that a run prints. A device has
# nothing to do where that is 0.
behind_first() {
    awk '/^stage / { inside = 1; next }
        inside && $0 == "" { exit }
        inside && seen++ { gsub(",", ""); sum += $NF }
        END { print sum + 0 }' "$1"
}

# ended LOG STATUS BEGUN COMMAND: keeps how something went that ran beside others, for `note_kept`.
ended() {
    echo "$2 $(($(date +%s) - $3))" >"$1.ended"
    echo "$4" >"$1.command"
}

# note_kept NAME LOG: notes it.
note_kept() {
    read -r status seconds <"$2.ended" || status=99 seconds=0
    note "$1" "$status" "$seconds" "$2.out" "$2.err" "$(cat "$2.command")"
}

# is_late LOG BEGUN COMMAND: whether the time is up; then that is kept.
is_late() {
    [ $(($2 - start)) -ge "$budget" ] || return 1
    : >"$1.out"
    echo "not begun: the time was up" >"$1.err"
    ended "$1" 125 "$2" "$3"
}

# differ CASE STATUS ARGUMENTS…: the CPU and the device must write the same bytes.
differ() {
    case_name=$1 wanted=$2
    shift 2
    log=$out/parts/case-$case_name
    begun=$(date +%s)
    bad=0
    : >"$log.out"
    : >"$log.err"
    if is_late "$log" "$begun" "shadeline $*"; then
        return
    fi
    for side in cpu "$backend"; do
        folder=$out/captures/$case_name/$(printf '%s' "$side" | tr ':' '-')
        mkdir -p "$folder"
        # No argument of a case holds a blank.
        filled=$(printf '%s\n' "$*" | sed -e "s|{data}|$kit/tests/data|g" -e "s|{out}|$folder|g")
        # shellcheck disable=SC2086
        (cd "$kit/cases/$case_name" &&
            timeout -k 10 "$limit" "$program" $filled --backend "$side") >"$log.run" 2>>"$log.err"
        status=$?
        cat "$log.run" >>"$log.out"
        if [ "$status" -ne "$wanted" ]; then
            echo "$side: status $status, not $wanted" >>"$log.err"
            bad=1
        fi
    done
    # Who did it: all of it the device, none of it again on the CPU.
    if [ "$wanted" -eq 0 ]; then
        if ! grep -q ', 0 jobs repeated on the CPU' "$log.run" ||
            { [ "$(behind_first "$log.run")" -gt 0 ] && grep -q ': 0 jobs, ' "$log.run"; }; then
            echo "the device did not do its jobs" >>"$log.err"
            bad=1
        fi
    fi
    cpu=$out/captures/$case_name/cpu
    if [ "$(cd "$cpu" && echo ./*)" != "$(cd "$folder" && echo ./*)" ]; then
        echo "other files: $(cd "$cpu" && echo ./*) and $(cd "$folder" && echo ./*)" >>"$log.err"
        bad=1
    fi
    files=0
    for file in "$cpu"/*.pcapng; do
        [ -e "$file" ] || continue
        files=$((files + 1))
        # Differences go to the log with their place.
        cmp "$file" "$folder/${file##*/}" >>"$log.err" 2>&1 || bad=1
    done
    # Only what is refused may write nothing.
    if [ "$files" -eq 0 ] && [ "$wanted" -eq 0 ]; then
        echo "no capture was written" >>"$log.err"
        bad=1
    fi
    ended "$log" "$bad" "$begun" "shadeline $* --backend cpu, then $backend; cmp of $files captures"
}

# prove NAME: one of the test programs, on this device.
prove() {
    name=$1
    proof=$out/proof-$name
    gzip -dc "$kit/proofs/$name.gz" >"$proof" && chmod +x "$proof"
    # Of the jobs' program only what is not of OpenCL alone. A short run shows that the programs work here, no more.
    case $name:$short in
    jobs:*) only=accelerator:: ;;
    stages:true) only='kernels_of_every_shape segments_follow' ;;
    ciphers:true) only=keys_do_not_stay ;;
    flows:*) only= ;; # a few seconds
    *:true) only=known:: ;;
    *) only= ;;
    esac
    log=$out/parts/proof-$name
    begun=$(date +%s)
    if is_late "$log" "$begun" "proofs/$name $only"; then
        rm -f "$proof"
        return
    fi
    # shellcheck disable=SC2086
    (cd "$out" && SHADELINE_TEST_BACKEND=$backend SHADELINE_TEST_ROOT="$kit" SHADELINE_CACHE="$out/proofs" timeout -k 10 "$limit" \
        "$proof" $only --skip oclgrind --show-output) >"$log.out" 2>"$log.err"
    status=$?
    rm -f "$proof"
    ended "$log" "$status" "$begun" "proofs/$name $only"
}

# beside COMMAND…: runs it in the background, `jobs` at a time.
running=0
beside() {
    "$@" </dev/null &
    running=$((running + 1))
    if [ "$running" -ge "$jobs" ]; then
        wait
        running=0
    fi
}

: >"$out/parts.json"
date=$(date -u +%Y-%m-%dT%H:%M:%SZ)

case $backend in
cuda*)
    # OpenCL's devices are not what is measured, and each would be tested.
    export OPENCL_DYLIB_PATH=/nonexistent
    ;;
esac
# shellcheck disable=SC2086
part devices devices --json $quick
case $backend in
cuda*)
    # A driver without its compiler: the PTX of this build must do.
    cache=$SHADELINE_CACHE nvrtc=${SHADELINE_NVRTC:-}
    export SHADELINE_CACHE= SHADELINE_NVRTC=/nonexistent
    part devices_without_nvrtc devices --json --quick
    export SHADELINE_CACHE="$cache" SHADELINE_NVRTC="$nvrtc"
    ;;
esac
while read -r case_name wanted arguments; do
    # shellcheck disable=SC2086
    [ -z "$case_name" ] || beside differ "$case_name" "$wanted" $arguments
done <"$kit/cases/list"
wait
running=0
while read -r case_name wanted arguments; do
    [ -z "$case_name" ] || note_kept "case $case_name" "$out/parts/case-$case_name"
done <"$kit/cases/list"
# The test programs of kernels, stages, ciphers and flows, on this device. They compile programs of their own, which the release
# does not bring. What Oclgrind simulates is no matter of this device.
for packed in "$kit"/proofs/*.gz; do
    name=${packed##*/}
    [ ! -f "$packed" ] || beside prove "${name%.gz}"
done
wait
for packed in "$kit"/proofs/*.gz; do
    name=${packed##*/}
    [ ! -f "$packed" ] || note_kept "proof ${name%.gz}" "$out/parts/proof-${name%.gz}"
done
# shellcheck disable=SC2086
part bench_device bench device --json --backend "$backend" $device
# shellcheck disable=SC2086
part bench_ipsec bench ipsec --json --backend "$backend" $ipsec
# shellcheck disable=SC2086
part bench_update bench update --json --backend "$backend" $update
# shellcheck disable=SC2086
part bench_shade bench shade --json --backend "$backend" --loads "$loads" --names "$kit/names" $shade
# Figures and tables of GASPP that show a device.
for figure in table-1 table-2 8 9a 10a 10b; do
    # shellcheck disable=SC2086
    part "paper_gaspp_$figure" bench paper "gaspp-$figure" --json --backend "$backend" $paper
done

# The device's name stands behind its backend's.
case $backend in
*:*) numbered=$backend ;;
*) numbered=$backend:0 ;;
esac
below() {
    sed -n "/\"backend\": \"$numbered\"/,/}/s/^ *\"$1\": \"\(.*\)\",*\$/\1/p" "$out/parts/devices.out" | head -n 1
}
nvidia=$(nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current \
    --format=csv,noheader 2>/dev/null | head -n 8)
cpu_name=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
{
    printf '{\n  "format": 1,\n'
    printf '  "device": %s,\n  "driver": %s,\n' "$(quoted "$(below name)")" "$(quoted "$(below driver)")"
    printf '  "date": "%s",\n  "commit": %s,\n' "$date" "$(quoted "$(cat "$kit/commit")")"
    printf '  "backend": %s,\n  "short": %s,\n' "$(quoted "$backend")" "$short"
    printf '  "machine": {\n    "nvidia_smi": %s,\n    "cpu": %s,\n' "$(quoted "$nvidia")" "$(quoted "$cpu_name")"
    printf '    "cpus": %s,\n    "kernel": %s\n  },\n' "$(nproc)" "$(quoted "$(uname -sr)")"
    printf '  "total": %s,\n  "failed": %s,\n  "parts": [\n' "$total" "$failed"
    cat "$out/parts.json"
    printf '\n  ]\n}\n'
} >"$out/result.part"
mv "$out/result.part" "$out/result.json"
rm -f "$out/parts.json" "$out/word"
echo "$((total - failed)) of $total parts passed: $out/result.json"
# Where `devices` failed, the name is what nvidia-smi says.
known=$(below name)
named=$(printf '%s' "${known:-${nvidia%%,*}}" | tr -cs 'A-Za-z0-9' '_')
echo "to be kept as bench/results/$named-${date%T*}-$(cat "$kit/commit").json"
[ "$failed" -eq 0 ]
