#!/bin/sh
# runc for machines whose own process may neither raise limits nor lower its OOM score, such as containers that
# tests run in: those two wishes of Docker are dropped, and the capability that they need.
previous=
for word in "$@"; do
  case $previous in --bundle | -b)
    config=$word/config.json
    if [ -f "$config" ]; then
      jq -c 'del(.process.rlimits)
        | if (.process.oomScoreAdj // 0) < 0 then .process.oomScoreAdj = 0 else . end
        | if .process.capabilities then .process.capabilities |= map_values(map(select(. != "CAP_SYS_RESOURCE"))) else . end' \
        "$config" > "$config.new" && mv "$config.new" "$config"
    fi ;;
  esac
  previous=$word
done
exec runc "$@"
