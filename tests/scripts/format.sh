#!/usr/bin/env bash
# The C files of these rooms are as clang-format of Debian 12 has them by .clang-format.
. "$(dirname "$0")/../lib.sh"
cd "$top_srcdir"

# Other versions break lines elsewhere.
[[ $(clang-format --version 2>/dev/null) == *"version 14."* ]] ||
	skip_all "clang-format 14, that of Debian 12, is not installed"
rooms=(base fs cache)
rooms+=(cache/{catalog,credentials,fetch,http,index,listing,origin,policy,prefetch,store})
for room in "${rooms[@]}"; do
	depth=(-maxdepth 1)
	[[ $room != fs ]] || depth=()
	mapfile -t files < <(find "$room" "${depth[@]}" -name '*.[ch]' | sort)
	equal "$room: clang-format changes nothing" "" \
		"$(clang-format --dry-run "${files[@]}" 2>&1 | sed -n 's/: warning: .*//p' | head -n 5)"
done
cp .clang-format "$T/"
printf 'int  a;\n' >"$T/a.c"
check "what it would change is found" bash -c "clang-format --dry-run '$T/a.c' 2>&1 | grep -q warning"
