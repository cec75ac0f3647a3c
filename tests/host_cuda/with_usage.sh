#!/bin/sh
# with_usage.sh FILE COMMAND...: runs a compiler; what ptxas says of registers and spills goes to FILE, errors are shown.
usage=$1
shift
if "$@" 2>"$usage"; then
  grep -v -E "^(ptxas info|nvcc|[[:space:]]+[0-9]+ bytes stack frame|[[:space:]]*Function properties)" "$usage" >&2
  exit 0
fi
cat "$usage" >&2
exit 1
