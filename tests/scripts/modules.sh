#!/usr/bin/env bash
# Modules and their folders: each folder includes only folders below it.
. "$(dirname "$0")/../lib.sh"
cd "$top_srcdir"

# From the top down.
cat >"$T/floors" <<'END'
fs/cli fs/daemon fs/fuse fs/options cache/members cache cache/prefetch cache/catalog cache/decompress cache/fetch cache/store cache/index cache/origin
cache/credentials cache/listing cache/http cache/tier cache/policy base
END
cat >"$T/loader" <<'END'
loader/tools loader loader/pipeline loader/batch loader/option loader/device loader/device/kernels loader/image
loader/image/pixel loader/order loader/shard loader/shard/index loader/shard/tokens loader/shard/file loader/random
loader/include base
END
# Folders with one header for other folders, which is named like the folder.
faced="cache/decompress loader/pipeline loader/batch loader/option loader/device loader/device/kernels loader/image
	loader/image/pixel loader/order loader/shard loader/shard/index loader/shard/tokens loader/shard/file
	loader/random"

# wrong FLOORS ROOTS FILE...: prints lines "FILE: NAME" of includes of a higher folder, another area or a
# missing file. ROOTS: where names are looked for.
wrong() {
	awk -v roots="$2" '
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
			if (!(there in floor) || floor[there] < floor[here])
				print FILENAME ": " name
		}' "$T/$1" "${@:3}"
}
# private ROOTS FILE...: prints lines "FILE: NAME" of includes of private headers of the folders in $faced.
private() {
	for folder in $faced; do
		for root in $1; do
			[[ $folder == "$root"/* ]] || continue
			grep -HoE "^[[:space:]]*#[[:space:]]*include \"${folder#"$root"/}/[a-z0-9_]+\.h\"" "${@:2}" |
				awk -F '[:"]' -v own="$folder/" -v face="${folder#"$root"/}/${folder##*/}.h" '
					$3 != face && index(substr($1, 1, length(own)), own) == 0 { print $1 ": " $3 }' || true
		done
	done
}
mapfile -t base < <(find base -name '*.[ch]' | sort)
mapfile -t cache < <(find cache -name '*.[ch]' | sort)
mapfile -t fs < <(find fs -name '*.[ch]' | sort)
mapfile -t loader < <(find loader -name '*.[ch]' -not -path 'loader/python/*' -not -path 'loader/examples/*' | sort)
check "the sources are found" \
	test "${#base[@]}" -gt 20 -a "${#cache[@]}" -gt 100 -a "${#fs[@]}" -gt 50 -a "${#loader[@]}" -gt 100
equal "base/ includes only base/" "" "$(wrong floors "" "${base[@]}")"
equal "no folder of cache/ includes one above it" "" "$(wrong floors cache "${cache[@]}")"
equal "cache/decompress/ has one header for others" "" "$(private cache "${cache[@]}" "${fs[@]}")"
equal "no folder of fs/ includes one above it" "" "$(wrong floors "fs cache" "${fs[@]}")"
# second FILE...: prints lines "FILE: HEADER" of includes of another folder's header that is not named like
# the folder. catalog/ has two on purpose: catalog.h for fs/, dataset.h for the folders of
# cache/ that open and read a dataset's files.
second() {
	awk '
		/^[ \t]*#[ \t]*include[ \t]*"/ {
			split($0, part, "\"")
			if (split(part[2], of, "/") != 2 || of[1] == "base" || index(FILENAME, "/" of[1] "/"))
				next
			if (of[2] != of[1] ".h" && part[2] != "catalog/dataset.h")
				print FILENAME ": " part[2]
		}' "$@"
}
# The one header of fetch/ for others is fill.h.
equal "folders of cache/ have one header for others" "" "$(second "${cache[@]}" |
	grep -v ': fetch/\(fill\|fill_private\)\.h$' || true)"
# Each folder of fs/ has one header for the others.
equal "folders of fs/ have one header for others" "daemon/daemon.h fuse/fuse.h options/options.h" "$(
	for folder in cli daemon fuse options; do
		grep -hoE "^#include \"$folder/[a-z_]+\.h\"" "${fs[@]/#fs\/$folder\/*/\/dev\/null}" || true
	done | cut -d '"' -f 2 | sort -u | paste -s -d ' '
)"
equal "other folders include fill.h of cache/fetch" "fetch/fill.h" \
	"$(printf '%s\n' "${cache[@]}" "${fs[@]}" | grep -v '^cache/fetch/' |
		xargs grep -hoE '^#include "fetch/[a-z_]+\.h"' | cut -d '"' -f 2 | sort -u)"
equal "no folder of the loader includes one above it" "" "$(wrong loader "loader loader/include" "${loader[@]}")"
equal "folders of the loader have one header for others" "" "$(private loader "${loader[@]}")"
# These headers are in loader/ itself, and in loader/include/.
equal "other folders include public.h and penstock.h of the loader's top" "penstock.h public.h" "$(
	printf '%s\n' "${loader[@]}" | grep '/.*/' | xargs grep -hoE '^#include "[a-z_]+\.h"' | cut -d '"' -f 2 |
		grep -v '^config\.h$' | sort -u | paste -s -d ' '
)"
if [[ -e .git && -x $top_builddir/penstock ]]; then # scripts/modules reads the calls from the objects
	scripts/modules "$top_builddir" >"$T/measured"
	equal "no files call each other in a circle" "circles of files: 0" \
		"$(grep '^circles of files' "$T/measured" | cut -d , -f 1)"
	check "no folders of the loader call each other in a circle" grep -q '^loader/: .*, circles: none$' "$T/measured"
fi

sed 's/^#include "base\/url.h"/&\n#include "cache.h"/' cache/http/client.c >"$T/client.c"
mkdir -p "$T/cache/http"
cp "$T/client.c" "$T/cache/http/"
touch "$T/cache/cache.h"
cd "$T"
equal "an include of a higher folder is reported" "cache/http/client.c: cache.h" \
	"$(wrong floors cache cache/http/client.c | grep ': cache\.h$')"
mkdir -p cache/index
printf '#include "%s"\n' http/http.h http/proxy_tls.h index/index_private.h base/hash.h >cache/index/a.c
equal "a second header for others is reported" "cache/index/a.c: http/proxy_tls.h" "$(second cache/index/a.c)"
