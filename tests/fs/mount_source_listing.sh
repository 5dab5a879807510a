#!/usr/bin/env bash
# SOURCE that ends in "/" is a listing, HTML or JSON, with its folders; sizes are exact, odd names survive.
. "$(dirname "$0")/../lib.sh"
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
	check "mounts /$kind" mount_penstock "$ORIGIN/$kind"
	equal "the same files (/$kind)" "$(cd "$T/www" && find . -type f | sort)" \
		"$(cd "$MNT" && find . -type f | sort)"
	equal "of the same sizes" "$(cd "$T/www" && find . -type f -printf '%p %s\n' | sort)" \
		"$(cd "$MNT" && find . -type f -printf '%p %s\n' | sort)"
	check "with their bytes" read_tree 1m
	umount_penstock
done

# Only part of the tree.
CACHE=$T/cache-part
mount_penstock "$ORIGIN/sub/"
equal "a folder as the root" "a b%20+&#.txt,deep," \
	"$(find "$MNT" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ',')"
umount_penstock

# A name with a control character cannot be shown; its neighbours can.
mkdir "$T/control"
for name in a $'b\nc' $'d\x01' $'e\x7f'; do touch "$T/control/$name"; done
echo "not UTF-8" >"$T/control/"$'\xff \xfe'
start_nginx "$T/control"
CACHE=$T/cache-control
check "a folder with control characters in its names" mount_penstock "$ORIGIN/"
equal "shows the others" $'a,\xff \xfe,' "$(cd "$MNT" && find . -type f -printf '%f\n' | sort | tr '\n' ',')"
check "with their bytes" cmp "$T/control/"$'\xff \xfe' "$MNT/"$'\xff \xfe'
