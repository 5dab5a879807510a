#!/usr/bin/env bash
# All shell scripts pass shellcheck, and each command of scripts/ has --help.
. "$(dirname "$0")/../lib.sh"
requires shellcheck

cd "$top_srcdir"
for script in scripts/* .ci/run bootstrap tests/*.sh tests/*/*.sh; do
	head -n 1 "$script" | grep -Eq '^#.*(bash|sh)' || continue
	check "$script" shellcheck -x "$script"
done
for script in scripts/*; do
	[[ -x $script ]] || continue
	check "$script --help" bash -c "'$script' --help </dev/null | grep -q Usage"
done
