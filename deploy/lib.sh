# Shared by the scripts of deploy/: messages, stages with their times, the cache, and processes that are surely ours.
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${SLUICE_BUILD:-$root/build}
cache=${SLUICE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice}
default_state_dir=${XDG_STATE_HOME:-$HOME/.local/state}/sluice
me=deploy/$(basename "$0")

# Not everything downloaded is for the user's home: compilers find what they made before in the same cache.
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}

say() { printf '%s\n' "$*"; }
die() {
  printf '%s: %s\n' "$me" "$*" >&2
  exit 1
}
usage_error() {
  printf '%s: %s\n' "$me" "$* (see $me --help)" >&2
  exit 2
}

# The comment block at the top of a script is its help.
print_help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

now_ms() { date +%s%3N; }

seconds_since() { # MS: "12.3"
  local ms=$(($(now_ms) - $1))
  printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# ---- stages: "==> name" ... "    name done in 1.2 s" ----

stage_name='' stage_start=0
stage() {
  stage_name=$1 stage_start=$(now_ms)
  say "==> $1${2:+: $2}"
}
stage_done() { stage_done_with "$(seconds_since "$stage_start") s"; }
stage_done_with() { say "    $stage_name done in $1"; }

# Runs a command with its output in LOG and says now and then how far it is; on failure names the log.
run_logged() { # LOG COMMAND...
  local log=$1 pid last='' line beat
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  beat=$(now_ms)
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    (($(now_ms) - beat >= 10000)) || continue
    beat=$(now_ms)
    line=$(tail -n 1 "$log" | cut -c 1-100)
    [[ $line == "$last" ]] || say "    ... $line"
    last=$line
  done
  wait "$pid" && return 0
  line=$(grep -m 1 -E 'error[: ]|Error|ERROR|^E: ' "$log" || tail -n 1 "$log")
  die "$stage_name failed: ${line:-no output}; the log is $log"
}

# ---- processes: a pid alone may have been reused, so it is kept with its start time ----

start_time_of() { # PID: clock ticks since boot, empty when there is no such process
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  stat=${stat##*) }
  # A zombie has ended; nobody can do anything with it but its parent.
  [[ $stat == Z* ]] && return 0
  cut -d ' ' -f 20 <<<"$stat"
}

record_process() { # FILE PID
  printf '%s %s\n' "$2" "$(start_time_of "$2")" >"$1"
}

# Prints the pid when the recorded process still lives.
recorded_pid() { # FILE
  local pid='' started=''
  [[ -e $1 ]] || return 1
  read -r pid started <"$1" || return 1
  [[ -n $started && $(start_time_of "$pid") == "$started" ]] || return 1
  printf '%s\n' "$pid"
}

recorded_pids() { # STATE_DIR: those that live, workers first
  local file
  for file in "$1"/run/{prefill,decode,both}-*.pid "$1"/run/router{,-*}.pid; do
    recorded_pid "$file" || true
  done
}

# Prints the address of the first router that lives.
live_router() { # RUN_DIR
  local name
  for name in router router-{1..15}; do
    recorded_pid "$1/$name.pid" >/dev/null && cat "$1/$name.addr" 2>/dev/null && return 0
  done
  return 1
}

port_is_taken() { # PORT
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

is_number() { # TEXT LEAST MOST
  [[ $1 =~ ^(0|[1-9][0-9]{0,8})$ ]] && (($1 >= $2 && $1 <= $3))
}
