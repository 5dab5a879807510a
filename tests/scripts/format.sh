#!/usr/bin/env bash
# All C files are formatted as clang-format of Debian 12 does with .clang-format.
. "$(dirname "$0")/../lib.sh"
cd "$top_srcdir"

# Other versions break lines elsewhere.
[[ $(clang-format --version 2>/dev/null) == *"version 14."* ]] ||
	skip_all "clang-format 14, that of Debian 12, is not installed"
mapfile -t modules < <(find base fs cache loader tests -name '*.[ch]' -printf '%h\n' | sort -u)
at_least "the folders of C files are found" 40 "${#modules[@]}"
for area in "${modules[@]}"; do
	equal "$area: clang-format changes nothing" "" \
		"$(clang-format --dry-run "$area"/*.[ch] 2>&1 | sed -n 's/: warning: .*//p' | head -n 5)"
done
cp .clang-format "$T/"
printf 'int  a;\n' >"$T/a.c"
check "a file that clang-format would change is reported" \
	bash -c "clang-format --dry-run '$T/a.c' 2>&1 | grep -q warning"
