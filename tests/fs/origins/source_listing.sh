#!/usr/bin/env bash
# SOURCE that ends in "/" is a listing, HTML or JSON, with its folders. Sizes are exact, and odd names are
# kept.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_tree "$T/www"
mkdir "$T/www/empty" "$T/www/odd"
for name in $'\xc3\xa4 \xe2\x82\xac.txt' '"<>^`{|}?.txt' '%41%zz.txt' ' .txt'; do
	echo "$name" >"$T/www/odd/$name"
done
sha_manifest "$T/www" >"$T/manifest"
start_nginx
for kind in "" json/; do
	CACHE=$T/cache-$kind
	check "a mount of /$kind succeeds" mount_penstock "$ORIGIN/$kind"
	equal "the same files (/$kind)" "$(cd "$T/www" && find . -type f | sort)" \
		"$(cd "$MNT" && find . -type f | sort)"
	equal "the files have the same sizes (/$kind)" \
		"$(cd "$T/www" && find . -type f -printf '%p %s\n' | sort)" \
		"$(cd "$MNT" && find . -type f -printf '%p %s\n' | sort)"
	check "the files have the same bytes (/$kind)" read_tree 1m
	umount_penstock
done

# Only part of the tree.
CACHE=$T/cache-part
mount_penstock "$ORIGIN/sub/"
equal "a folder of the origin is the mount's root" "a b%20+&#.txt,deep," \
	"$(find "$MNT" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ',')"
umount_penstock

# Control characters in names are shown escaped, as those of keys are.
mkdir "$T/control"
for name in a $'b\nc' $'d\x01' $'e\x7f'; do touch "$T/control/$name"; done
echo "not UTF-8" >"$T/control/"$'\xff \xfe'
start_nginx "$T/control"
CACHE=$T/cache-control
check "a mount of names with control characters succeeds" mount_penstock "$ORIGIN/"
equal "all names are shown" \
	$'a,b%0Ac,d%01,e%7F,\xff \xfe,' "$(cd "$MNT" && find . -type f -printf '%f\n' | sort | tr '\n' ',')"
check "a name that is not UTF-8 has its bytes" cmp "$T/control/"$'\xff \xfe' "$MNT/"$'\xff \xfe'
