#!/usr/bin/env bash
# SOURCE that ends in "/" is a listing, HTML or JSON, with its folders; sizes are exact, odd names survive.
. "$(dirname "$0")/../lib.sh"
requires mount nginx

make_tree "$T/www"
mkdir "$T/www/empty"
start_nginx
for kind in "" json/; do
	CACHE=$T/cache-$kind
	check "mounts /$kind" mount_penstock "$ORIGIN/$kind"
	equal "the same files (/$kind)" "$(cd "$T/www" && find . -type f | sort)" "$(cd "$MNT" && find . -type f | sort)"
	equal "of the same sizes" "$(cd "$T/www" && find . -type f -printf '%p %s\n' | sort)" \
		"$(cd "$MNT" && find . -type f -printf '%p %s\n' | sort)"
	check "with their bytes" read_tree 1m
	umount_penstock
done

# Only part of the tree.
CACHE=$T/cache-part
mount_penstock "$ORIGIN/sub/"
equal "a folder as the root" "a b%20+&#.txt,deep," "$(find "$MNT" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | tr '\n' ',')"
