#!/usr/bin/env bash
# The public surface is as recorded in this folder: functions, options with their defaults, commands, exit codes, keys
# of JSON, metrics, formats (docs/compatibility.md). After a change that is meant: tests/surface/record
. "$(dirname "$0")/../lib.sh"
requires python3

record=$top_srcdir/tests/surface
mkdir "$T/now"
rc=0
"$python" "$record/record" "$T/now" 2>"$T/left" || rc=$?
equal "the surface of the programs is found" "" "$( ((rc == 0)) || cat "$T/left")"
for file in "$record"/*.txt; do
	name=${file##*/}
	if [[ -e $T/now/$name ]]; then
		equal "$name is as the programs are; if the change is meant, run tests/surface/record and commit" "" \
			"$(diff -U 0 "$file" "$T/now/$name" | grep '^[-+][^-+]' || true)"
	else
		skip "$name" "$(sed -n "s/^$name: //p" "$T/left")"
	fi
done
equal "each part of the surface has its file" "" \
	"$(comm -13 <(cd "$record" && printf '%s\n' *.txt) <(cd "$T/now" && printf '%s\n' *.txt))"
