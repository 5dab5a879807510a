#!/usr/bin/env bash
# The listings of other servers than nginx: names, exact sizes and bytes; a server that sends no ETag, or no
# version at all.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/web_servers.sh"
requires mount curl

www=$T/www
mkdir -p "$www/sub folder/deep"
odd=("a b" "plus+" "per%41cent" "hash#" "quest?" "amp&" "lt<gt>" "quote\"" "apos'" "semi;colon:" "ü" "日本" "br[a]{b}" "at@eq="
	"~tilde" "C=N;O=D" "a-very-long-name-that-servers-cut-in-their-listings-to-some-fifty-characters-000001")
for name in "${odd[@]}"; do
	random_file "$www/$name.tar" $((${#name} * 1001))
	random_file "$www/sub folder/deep/$name.bin" "${#name}"
done
random_file "$www/empty.tar" 0
random_file "$www/large.tar" 7654321
chmod -R a+rX "$www"
sha_manifest "$www" >"$T/manifest"
sizes() { (cd "$1" && find . -type f -printf '%p %s\n' | sort); }

seen=0
# listed NAME PROGRAM: tests the listing of a server, if the program is installed.
listed() {
	local name=$1
	command -v "$2" >/dev/null || { skip "$name" "$2 is not installed" && return; }
	[[ $2 != apache2 || -d /usr/lib/apache2/modules ]] || { skip "$name" "no modules of apache2" &&
		return; }
	seen=$((seen + 1))
	serve "$name" "$www"
	CACHE=$T/cache-$name
	check "$name: mounts" mount_penstock "$ORIGIN/"
	if [[ $name == python ]]; then
		# This server does not support ranges, so only names are compared.
		equal "$name: names are right" "$(cd "$www" && find . -type f | sort)" \
			"$(cd "$MNT" && find . -type f | sort)"
	else
		equal "$name: names and sizes are right" "$(sizes "$www")" "$(sizes "$MNT")"
		check "$name: bytes are right" read_tree 1m
	fi
	umount_penstock
	stop_serving
}

listed apache apache2
listed apache-fancy apache2
listed lighttpd lighttpd
listed caddy caddy
listed rclone rclone
listed python "$python"
((seen > 0)) || skip "servers" "none is installed"

# Without an ETag the version is Last-Modified and the size.
if command -v lighttpd >/dev/null; then
	serve lighttpd "$www"
	check_not "lighttpd sends no ETag" grep -qi '^etag' <(curl -sI "$ORIGIN/large.tar")
	CACHE=$T/cache-changes
	mount_penstock "$ORIGIN/" --revalidate open
	check "a file without an ETag is read" cmp "$MNT/large.tar" "$www/large.tar"
	random_file "$T/other" 7654321 other
	touch -d '2020-01-02' "$T/other"
	mv "$T/other" "$www/large.tar"
	check "a file of the same size and another time is read again" cmp "$MNT/large.tar" "$www/large.tar"
	umount_penstock
	stop_serving
fi
