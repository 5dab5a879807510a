#!/usr/bin/env bash
# Rooms and their folders: each includes those below it alone.
. "$(dirname "$0")/../lib.sh"
cd "$top_srcdir"

# From the top down.
cat >"$T/floors" <<'END'
fs/cli fs/daemon fs/fuse fs/options cache cache/prefetch cache/catalog cache/decompress cache/fetch cache/store cache/index cache/origin
cache/credentials cache/listing cache/http cache/policy base
END

# Lines "FILE: NAME" of includes that run up, lead to another room, or to no file; roots: where names are looked for.
wrong() {
	awk -v roots="$1" '
		FILENAME == ARGV[1] {
			for (i = 1; i <= NF; i++)
				floor[$i] = ++n
			next
		}
		function folder(path) { sub("/[^/]*$", "", path); return path }
		/^[ \t]*#[ \t]*include[ \t]*"/ {
			split($0, part, "\"")
			name = part[2]
			if (name == "config.h")
				next
			here = folder(FILENAME)
			there = name ~ "^base/" ? "base" : "?"
			split(roots, root, " ")
			for (i = 1; there == "?" && i in root; i++)
				if ((getline line <(root[i] "/" name)) >= 0) {
					close(root[i] "/" name)
					there = folder(root[i] "/" name)
				}
			if (there == here)
				next
			if (here ~ "^loader") {
				if (there !~ "^(loader|base)")
					print FILENAME ": " name
			} else if (!(there in floor) || floor[there] < floor[here])
				print FILENAME ": " name
		}' "$T/floors" "${@:2}"
}
mapfile -t base < <(find base -name '*.[ch]' | sort)
mapfile -t cache < <(find cache -name '*.[ch]' | sort)
mapfile -t fs < <(find fs -name '*.[ch]' | sort)
mapfile -t loader < <(find loader -name '*.[ch]' -not -path 'loader/python/*' -not -path 'loader/examples/*' | sort)
check "there are files to look at" test "${#base[@]}" -gt 20 -a "${#cache[@]}" -gt 100 -a "${#fs[@]}" -gt 50 -a "${#loader[@]}" -gt 100
equal "base/ includes base/ alone" "" "$(wrong "" "${base[@]}")"
equal "no folder of cache/ includes one above it" "" "$(wrong cache "${cache[@]}")"
equal "no folder of fs/ includes one above it" "" "$(wrong "fs cache" "${fs[@]}")"
equal "the loader includes its own files and base/" "" "$(wrong "loader loader/device" "${loader[@]}")"

sed 's/^#include "base\/url.h"/&\n#include "cache.h"/' cache/http/request.c >"$T/request.c"
mkdir -p "$T/cache/http"
cp "$T/request.c" "$T/cache/http/"
touch "$T/cache/cache.h"
cd "$T"
equal "one that does is found" "cache/http/request.c: cache.h" "$(wrong cache cache/http/request.c | grep ': cache\.h$')"
