#!/usr/bin/env bash
# All shell scripts pass shellcheck, and each command of scripts/ has --help.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-400}
. "$(dirname "$0")/../lib.sh"
requires shellcheck

cd "$top_srcdir"
scripts=()
for script in scripts/* .ci/run bootstrap tests/*.sh tests/*/*.sh; do
	! head -n 1 "$script" | grep -Eq '^#.*(bash|sh)' || scripts+=("$script")
done
# checked DIR SCRIPT...: as they are in DIR, on all processors.
checked() {
	local dir=$1
	shift
	# shellcheck disable=SC2016 # the inner shell's
	(cd "$dir" && printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -I{} sh -c \
		'shellcheck -x "$1" >"$2/$(echo "$1" | tr / +)" 2>&1' sh {} "$T") || true
}
# names LIBRARY: assigns what it assigns, and uses what it uses.
# shellcheck disable=SC2016 # no expansions
names() {
	printf '%s\n' '# shellcheck shell=bash' 'set -euo pipefail'
	grep -oE '\b[A-Za-z_][A-Za-z0-9_]*=' "$1" | sort -u
	grep -oE '\$\{?[A-Za-z_][A-Za-z0-9_]*' "$1" | tr -d '${' | sort -u | sed 's/.*/: "$&"/'
}
# A test that is read together with tests/lib.sh takes seven times as long as one that is read with the names in it.
libraries=() programs=()
for script in "${scripts[@]}"; do
	if [[ $script == tests/* && $(head -n 1 "$script") != '#!'* ]]; then
		libraries+=("$script")
	else
		programs+=("$script")
	fi
done
tree=$PWD
if ! long; then
	tree=$T/tree
	mkdir "$tree"
	cp --parents .shellcheckrc "${scripts[@]}" "$tree"
	for script in "${libraries[@]}"; do
		names "$script" >"$tree/$script"
	done
fi
checked "$PWD" "${libraries[@]}"
checked "$tree" "${programs[@]}"
for script in "${scripts[@]}"; do
	equal "$script" "" "$(cat "$T/${script//\//+}")"
done
for script in scripts/*; do
	[[ -x $script ]] || continue
	check "$script --help" bash -c "'$script' --help </dev/null | grep -q Usage"
done
