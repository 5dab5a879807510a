#!/usr/bin/env bash
# All shell scripts pass shellcheck (with PENSTOCK_TEST_LONG=1 the tests, too), and each command of scripts/ has --help.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-400}
. "$(dirname "$0")/../lib.sh"
requires shellcheck

cd "$top_srcdir"
scripts=()
candidates=(scripts/* scripts/tier/* .ci/run bootstrap)
# Checking the tests' scripts takes half a minute of CPU time.
! long || candidates+=(tests/*.sh tests/*/*.sh tests/*/*/*.sh)
for script in "${candidates[@]}"; do
	[[ -d $script ]] || ! head -n 1 "$script" | grep -Eq '^#.*(bash|sh)' || scripts+=("$script")
done
# shellcheck disable=SC2016 # for the inner shell
printf '%s\0' "${scripts[@]}" | xargs -0 -P "$(nproc)" -I{} sh -c \
	'shellcheck -x "$1" >"$2/$(echo "$1" | tr / +)" 2>&1' sh {} "$T" || true
for script in "${scripts[@]}"; do
	equal "shellcheck accepts $script" "" "$(cat "$T/${script//\//+}")"
done
for script in scripts/* scripts/tier/*; do
	[[ -f $script && -x $script ]] || continue
	check "$script --help prints its usage" bash -c "'$script' --help </dev/null | grep -q Usage"
done
