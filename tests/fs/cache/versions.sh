#!/usr/bin/env bash
# What an origin, or the user's list, says of versions: replicas that disagree about them, a size that is
# wrong, files that are stored encoded.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr

mkdir -p "$T/www"
for name in a b; do
	random_file "$T/www/$name.tar" 3000000 "$name"
done
start_nginx
xattr() { getfattr --absolute-names --only-values -n "user.penstock.$2" "$MNT/$1"; }
same() { cmp "$MNT/$1" "$T/www/$1"; }

# Two servers behind one name, whose files have the same bytes and other dates.
for i in 1 2; do
	cp -r "$T/www" "$T/replica$i"
	touch -d "2026-01-01 10:00:0$i" "$T/replica$i"/*
done
port=$(free_port) one=$(free_port) two=$(free_port)
# serve NAME CONFIG: an nginx whose http block has CONFIG.
serve() {
	mkdir -p "$T/$1/tmp"
	cat >"$T/$1/nginx.conf" <<-CONF
		$( ((EUID != 0)) || echo "user root;")
		worker_processes 1; pid $T/$1/nginx.pid; error_log $T/$1/error.log; daemon on;
		events { worker_connections 256; }
		http {
		log_format asked '\$request_method \$uri \$status \$http_if_match \$http_if_unmodified_since';
		access_log $T/$1/access.log asked; default_type application/octet-stream;
		client_body_temp_path $T/$1/tmp/b; proxy_temp_path $T/$1/tmp/p; fastcgi_temp_path $T/$1/tmp/f;
		uwsgi_temp_path $T/$1/tmp/u; scgi_temp_path $T/$1/tmp/s;
		$2
		}
	CONF
	nginx -p "$T/$1" -c "$T/$1/nginx.conf" 2>"$T/$1/start.log"
}
serve replicas "
	server { listen 127.0.0.1:$one; root $T/replica1; autoindex on; }
	server { listen 127.0.0.1:$two; root $T/replica2; autoindex on; }
	upstream replicas { server 127.0.0.1:$one; server 127.0.0.1:$two; }
	server { listen 127.0.0.1:$port; location / { proxy_pass http://replicas; proxy_buffering off; } }"
REPLICAS=http://127.0.0.1:$port/

mount_penstock "$REPLICAS" --revalidate open
alternates() {
	cat "$MNT/a.tar" >/dev/null 2>&1 || true
	xattr a.tar error | grep -q "alternates between versions: .* and .*--version-by size"
}
check "replicas that disagree: the error says that versions alternate, and what helps" wait_until 20 alternates
check "replicas that disagree: the log says so" grep -q 'a.tar: the origin alternates between' "$T/penstock.log"
umount_penstock
CACHE=$T/cache-by-size
: >"$T/replicas/access.log"
mount_penstock "$REPLICAS" --version-by size --revalidate open
check "--version-by size: a file is read from all replicas" same a.tar
for _ in 1 2 3 4; do
	same b.tar || break
done
check "--version-by size: a file is read again and again" same b.tar
equal "--version-by size: no request has a condition" "" "$(awk 'NF > 3 && ($4 != "-" || $5 != "-")' "$T/replicas/access.log")"
equal "--version-by size: the statistics say so" size "$(stats '.mounts[0].version_by')"
check "--version-by size: status says that versions are not checked" \
	grep -q 'versions *not checked' <(penstock status "$MNT")
# Another size is another version, for files that are open as well as later.
random_file "$T/replica1/a.tar" 3000001
cp "$T/replica1/a.tar" "$T/replica2/a.tar"
check "--version-by size: a file of another size is a new version" wait_until 10 cmp "$MNT/a.tar" "$T/replica1/a.tar"
umount_penstock
# shellcheck disable=SC2016 # for the inner shell
check_not "--version-by size is part of the identity: other mounts read no byte of it" \
	bash -c 'penstock mount "$1" "$2" --cache-dir "$3" --log "$4" && cp "$2/b.tar" "$5" && penstock status "$2" --json |
		jq -e ".origin.bytes == 0" >/dev/null; rc=$?; penstock umount "$2"; exit $rc' - \
	"http://127.0.0.1:$one/" "$MNT" "$CACHE" "$T/penstock.log" "$T/out"

# A list that states another size than the object has.
CACHE=$T/cache-list
told="the list says 3000001 bytes, the origin has 3000000"
echo "$ORIGIN/a.tar 3000001" >"$T/list.txt"
rc=0
mount_penstock "@$T/list.txt" >"$T/out" 2>&1 || rc=$?
equal "a list whose first size is wrong: the mount fails, and has both numbers" "1 1" "$rc $(grep -c "$told" "$T/out")"
printf '%s\n' "$ORIGIN/b.tar 3000000" "$ORIGIN/a.tar 3000001" >"$T/list.txt"
mount_penstock "@$T/list.txt"
check "a list's right size: the file is read" same b.tar
rc=0
cat "$MNT/a.tar" >"$T/out" 2>"$T/err" || rc=$?
equal "a list's wrong size: the file cannot be read" 1 "$rc"
equal "a list's wrong size: it is an I/O error" 1 "$(grep -c 'Input/output error' "$T/err")"
check "a list's wrong size: the log has both numbers" grep -q "a.tar: $told" "$T/penstock.log"
check "a list's wrong size: status has both numbers" grep -q "$told" <(penstock status "$MNT")
umount_penstock
printf '%s\n' "$ORIGIN/a.tar 3000000" "$ORIGIN/b.tar 2999999" >"$T/list.txt"
mount_penstock "@$T/list.txt"
check "a corrected list: the file is read" same a.tar
unreadable() { ! same "$1" 2>/dev/null; }
check "a later list with a wrong size: the cached file cannot be read" unreadable b.tar
umount_penstock

# Files that a server stores encoded, as Apache with AddEncoding does: their bytes are those that are stored.
CACHE=$T/cache-encoded
gzip -c "$T/www/a.tar" >"$T/www/c.tar.gz"
port=$(free_port)
serve encoded "server { listen 127.0.0.1:$port; root $T/www; autoindex on; add_header Content-Encoding x-gzip; }"
printf '%s\n' "http://127.0.0.1:$port/a.tar" "http://127.0.0.1:$port/c.tar.gz" >"$T/list.txt"
mount_penstock "@$T/list.txt" --timeout 5s
check "a file with Content-Encoding is read as it is stored" same a.tar
check "a compressed shard with Content-Encoding is decompressed" cmp "$MNT/c.tar" "$T/www/a.tar"
umount_penstock
mount_penstock "@$T/list.txt" --raw --timeout 5s
check "--raw: a compressed shard with Content-Encoding is read as it is stored" same c.tar.gz
