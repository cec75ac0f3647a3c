# Starting servers and waiting for them, for deploy/up and deploy/scale. Sourced after lib.sh.
# Needs: $run and $logs of the state folder, and the settings of the cluster (see save_cluster).
# shellcheck shell=bash disable=SC2034,SC2154

roles=(prefill decode both)

# What every later deploy/scale needs to start workers like those of deploy/up.
save_cluster() {
  local name
  for name in address router_list registry config cluster_key model compute kv_dtype threads threads_given tp pin; do printf '%s=%q\n' "$name" "${!name}"; done >"$run/cluster"
}

# Starts a server detached from this shell, with its output in a log of its own.
launch() { # NAME COMMAND...
  local name=$1
  shift
  [[ ! -e $logs/$name.log ]] || mv "$logs/$name.log" "$logs/$name.log.1"
  setsid "$@" >"$logs/$name.log" 2>&1 </dev/null 8>&- &
  record_process "$run/$name.pid" $!
  disown
}

# Waits for the line "... ready: ..." of a server; prints it.
ready_line() { # NAME
  local name=$1 began_waiting beat line
  began_waiting=$(now_ms) beat=$began_waiting
  while true; do
    line=$(grep -m 1 -E '^sluice_[a-z]+ ready:' "$logs/$name.log" || true)
    [[ -z $line ]] || { say "$line" && return 0; }
    if ! recorded_pid "$run/$name.pid" >/dev/null; then
      line=$(grep -v '^ *$' "$logs/$name.log" | tail -n 1)
      printf '%s: %s ended while starting: %s; the log is %s\n' "$me" "$name" \
        "${line:-it said nothing, as a process does that is killed (out of memory?)}" \
        "$logs/$name.log" >&2
      return 1
    fi
    if (($(now_ms) - began_waiting > 120000)); then
      printf '%s: %s is not ready after 120 s; the log is %s\n' "$me" "$name" "$logs/$name.log" >&2
      return 1
    fi
    if (($(now_ms) - beat >= 5000)); then
      beat=$(now_ms)
      say "    ... waiting for $name, $(seconds_since "$began_waiting") s" >&2
    fi
    sleep 0.05
  done
}

# The cores of worker number SLOT when each gets $threads of them, in turns: "2,3".
cores_of() { # SLOT
  local total first i list=''
  total=$(nproc) first=$(($1 * threads % $(nproc)))
  for ((i = 0; i < threads && i < total; ++i)); do list+=,$(((first + i) % total)); done
  printf '%s' "${list#,}"
}

# "router", "router-1", "router-2", ...
router_name() { # INDEX
  if (($1)); then printf 'router-%s' "$1"; else printf 'router'; fi
}

# What --config says about an option of a server, or the server's default; nothing without --config.
configured() { # PROGRAM OPTION
  [[ -n ${config:-} ]] || return 0
  "$build/$1" --config "$config" --print-config | sed -nE "s/^$2: \"?([^\"]*)\"?$/\1/p"
}

launch_router() { # INDEX
  local command=("$build/sluice_router" --model "$model" --cluster-key "${cluster_key:-$run/cluster.key}"
    --grpc-port $((grpc_port ? grpc_port + $1 : 0)) --http-port $((http_port ? http_port + $1 : 0)))
  [[ -z $registry ]] || command+=(--registry "$registry")
  [[ -z ${config:-} ]] || command+=(--config "$config")
  launch "$(router_name "$1")" "${command[@]}"
}

launch_worker() { # ROLE INDEX SLOT
  local binary=sluice_decode command router
  [[ $1 != prefill ]] || binary=sluice_prefill
  local of_rank=$((threads / ${tp:-1} > 0 ? threads / ${tp:-1} : 1))
  command=("$build/$binary" --model "$model" --cluster-key "${cluster_key:-$run/cluster.key}")
  [[ -z ${config:-} ]] || command+=(--config "$config")
  # 0 is the default: every core, which would be too many for several workers.
  if [[ -n ${threads_given:-} || $(configured $binary threads) =~ ^0?$ ]]; then command+=(--threads "$of_rank"); fi
  for router in $router_list; do command+=(--router "$router"); done
  [[ -z ${registry:-} ]] || command+=(--registry "$registry")
  ((${tp:-1} == 1)) || command+=(--tp "$tp")
  [[ $1 == prefill ]] || command+=(--role "$1")
  [[ -z $compute ]] || command+=(--compute "$compute")
  [[ -z ${kv_dtype:-} ]] || command+=(--kv-dtype "$kv_dtype")
  [[ $pin == 0 ]] || command+=(--cpus "$(cores_of "$3")")
  launch "$1-$2" "${command[@]}"
}

wait_for_worker() { # NAME
  local line
  line=$(ready_line "$1") || return 1
  say "    ${line#sluice_* }"
}

# Workers are ready before a router has them: waits until it counts all of these as active.
wait_until_active() { # ROUTER NAME...
  local name pid state began_waiting router=$1
  shift
  began_waiting=$(now_ms)
  for name in "$@"; do
    pid=$(recorded_pid "$run/$name.pid") || die "$name has ended; the log is $logs/$name.log"
    # The table's columns: role, pid, port, state.
    until state=$("$build/sluice" status --router "$router" 2>/dev/null) &&
      awk -v pid="$pid" '$2 == pid && $4 == "active" {found = 1} END {exit !found}' <<<"$state"; do
      if (($(now_ms) - began_waiting > 60000)); then
        printf '%s: %s is not active at the router %s after 60 s; the logs are in %s\n' "$me" "$name" "$router" "$logs" >&2
        return 1
      fi
      sleep 0.05
    done
  done
}

# No new requests for a worker, and at most $drain_seconds for those that it has. What is left then goes on elsewhere when
# the worker ends.
drain_worker() { # NAME
  local port
  port=$(sed -nE 's/^sluice_[a-z]+ ready:.* port=([0-9]+).*/\1/p' "$logs/$1.log" | head -n 1)
  [[ -n $port ]] || return 0
  "$build/sluice" drain --router "${router:-$address}" --timeout "$drain_seconds" "127.0.0.1:$port" || true
}

# Indices of the live workers of a role, ascending.
live_workers() { # ROLE
  local file index
  for file in "$run/$1"-*.pid; do
    recorded_pid "$file" >/dev/null || continue
    index=${file##*-}
    printf '%s\n' "${index%.pid}"
  done | sort -n
}
