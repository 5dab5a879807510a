#!/usr/bin/env bash
# getfattr shows of each file its URL without secrets, ETag, cached bytes and state.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx getfattr

mkdir -p "$T/www"
random_file "$T/www/f.bin" 5000000
start_nginx
mount_penstock "http://user:pass%3Aword@127.0.0.1:${ORIGIN##*:}/basic/"
attr() { getfattr --absolute-names --only-values -n "user.penstock.$1" "$MNT/f.bin"; }
etag=$(curl -sI -u user:pass:word "$ORIGIN/basic/f.bin" | tr -d '\r' | awk 'tolower($1) == "etag:" {print $2}')
equal "the attribute url has no secrets" "$ORIGIN/basic/f.bin" "$(attr url)"
equal "the attribute etag is the origin's" "$etag" "$(attr etag)"
equal "the attribute cached is 0 before a read" 0 "$(attr cached)"
equal "the attribute state is remote before a read" remote "$(attr state)"
cat "$MNT/f.bin" >/dev/null
check "the attribute cached is the size soon after a read" wait_until 5 bash \
	-c "[ \"\$(getfattr --absolute-names --only-values -n user.penstock.cached '$MNT/f.bin')\" = 5000000 ]"
equal "the attribute state is cached after a read" cached "$(attr state)"
equal "the attributes are listed" \
	"cached etag state url" "$(getfattr -m '^user\.penstock\.' "$MNT/f.bin" 2>/dev/null |
	sed -n 's/^user\.penstock\.//p' | grep -E '^(url|etag|cached|state)$' | sort | xargs)"
check_not "an unknown attribute is not found" attr nothing
check "security labels and ACLs are not supported" "$python" -c 'import errno, os, sys
for name in "security.selinux", "system.posix_acl_access":
    try:
        os.getxattr(sys.argv[1], name)
    except OSError as e:
        assert e.errno == errno.EOPNOTSUPP, (name, e)
    else:
        sys.exit(f"{name} is there")' "$MNT/f.bin"
