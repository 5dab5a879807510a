#!/usr/bin/env bash
# Invalid arguments are refused at once with exit code 2 and an error that names them, and nothing is made.
. "$(dirname "$0")/../lib.sh"

# refused WORDS SCRIPT ARGUMENT...: the script must fail with WORDS.
refused() {
	local words=$1 rc=0
	shift
	(cd "$T" && timeout -k 5 60 "$top_srcdir/scripts/$1" "${@:2}") >"$T/out" 2>"$T/err" </dev/null ||
		rc=$?
	equal "$*: exit code" 2 "$rc"
	check "$*: says '$words'" grep -qF -- "$words" "$T/err"
	equal "$*: does nothing" "" "$(cat "$T/out")"
}

for size in abc 0 -1 1x 1e9 inf "" 0.0g; do
	refused "--size: '$size' is not a size such as 500m or 2g" demo --build-dir "$T/build" --no-setup \
		--size "$size"
done
refused "--size needs a size" demo --no-setup --size
refused "unknown option --frobnicate" demo --frobnicate
refused "--images: '$T/none' is not a folder" demo --images "$T/none"
check_not "nothing is built" test -e "$T/build"

for size in abc 0 1x 1e9 inf ""; do
	refused "--size: '$size' is not a size such as 500m or 2g" make-dataset "$T/made" --size "$size"
done
refused "--shard-size: '0' is not a size such as 500m or 2g" make-dataset "$T/made" --shard-size 0
refused "--images: '$T/none' is not a folder" make-dataset "$T/made" --images "$T/none"
check_not "nothing is made" test -e "$T/made"

refused "unknown option --frobnicate" bare-root --frobnicate
# As on a machine without debootstrap.
mkdir "$T/bin"
for program in bash cat dirname; do ln -s "$(command -v "$program")" "$T/bin/"; done
rc=0
PATH=$T/bin "$top_srcdir/scripts/bare-root" >"$T/out" 2>&1 || rc=$?
equal "bare-root: the exit code is 77 if no root can be made" 77 "$rc"
check "bare-root: the reason is printed" \
	grep -Eq '^SKIPPED: scripts/bare-root: (it needs root|debootstrap is not installed)' \
	"$T/out"
