#!/usr/bin/env bash
# penstock.conf(5): mounts by name, all of them, through mount(8); errors in it are reported with their line.
. "$(dirname "$0")/../lib.sh"
requires mount nginx jq

mkdir -p "$T/www/sub" "$T/src" "$MNT" "$T"/m{1..3}
random_file "$T/www/f.bin" 200000
random_file "$T/www/sub/s.bin" 100
random_file "$T/src/l.bin" 300
start_nginx
conf=$T/p.conf
export PENSTOCK_CONFIG=$conf
echo "X-Token: secret" >"$T/headers"
echo "user:pass:word" >"$T/user"
chmod 644 "$T/user"
cat >"$conf" <<CONF
# a comment
[defaults]
cache-dir = $CACHE
log = $T/penstock.log
file_mode = 0440

[one]
  source = $ORIGIN/
mountpoint = $T/m1
allow-other = no
[two]
source.local = $T/src/
source.token = $ORIGIN/token/
source.basic = $ORIGIN_TLS/basic/
token.header-file = $T/headers
basic.user-file = $T/user
basic.cacert = $T/nginx/ca.pem
mountpoint = $T/m2
file-mode = 0400
[by-hand]
source = $T/src/
mountpoint = $T/m3
auto = no
[nowhere]
source = $T/src/
auto = no
CONF

check "all are mounted" penstock mount --all
check "one serves" cmp "$T/m1/f.bin" "$T/www/f.bin"
equal "with the defaults" 440 "$(stat -c %a "$T/m1/f.bin")"
equal "two has three folders" "basic local token" "$(cd "$T/m2" && echo *)"
check "each with its own credentials" cmp "$T/m2/token/f.bin" "$T/www/f.bin"
check "and certificates" cmp "$T/m2/basic/sub/s.bin" "$T/www/sub/s.bin"
equal "and its own options" 400 "$(stat -c %a "$T/m2/local/l.bin")"
equal "all of one daemon" 1 "$(jq .pid "$T"/m{1,2}/.penstock/stats | sort -u | wc -l)"
check_not "what is to be mounted by hand is not" is_mounted "$T/m3"
check "once more changes nothing" penstock mount --all
equal "each is there once" 2 "$(penstock status --cache-dir "$CACHE" --json | jq '.mounts | length')"
check_not "no secret is in the log" grep -q "pass:word\|secret" "$T/penstock.log"
check "but who may read the file of one" \
	grep -q "warning: $T/user: every user of this machine may read it" "$T/penstock.log"
chmod 600 "$T/user" "$T/headers"
check "by name" penstock mount by-hand
check "it serves, too" cmp "$T/m3/l.bin" "$T/src/l.bin"
check "and goes by name" penstock umount by-hand
check "elsewhere, with another option" penstock mount by-hand "$MNT" --file-mode 0404
equal "the command line comes first" 404 "$(stat -c %a "$MNT/l.bin")"
check "all of the configuration go" penstock umount --all
check_not "the first" is_mounted "$T/m1"
check_not "the second" is_mounted "$T/m2"
check "but no others" is_mounted
umount_penstock
ln -s "$top_builddir/penstock" "$T/mount.penstock"
check "as mount(8) calls it for fstab" "$T/mount.penstock" by-hand "$T/m3" -o "rw,_netdev,nofail,x-systemd.automount,uid=7"
equal "with the options of fstab" "7 440" "$(stat -c '%u %a' "$T/m3/l.bin")"
penstock umount "$T/m3"
if ((EUID == 0)) && [[ $(readlink -f /sbin/mount.penstock 2>/dev/null) == "$top_builddir/penstock" ]]; then
	echo "by-hand $T/m3 penstock noauto 0 0" >"$T/fstab"
	check "mount(8) itself" mount -T "$T/fstab" "$T/m3"
	penstock umount "$T/m3"
fi
rc=0
penstock mount nowhere >"$T/out" 2>&1 || rc=$?
equal "one without a place is told to need one" "2 1" "$rc $(grep -c "has no mountpoint" "$T/out")"
rc=0
penstock mount no-such >"$T/out" 2>&1 || rc=$?
equal "an unknown name is told with the file" "2 1" "$rc $(grep -cF "no [no-such] in $conf" "$T/out")"
check "a mount with the name of no section" bash -c "cd '$T' && penstock mount src/ m3 --cache-dir '$T/own' --log '$T/own.log'"
kill -9 "$(jq .pid "$T/m3/.penstock/stats")"
check "is dead" wait_until 10 bash -c "! ls '$T/m3'"
check "umount takes it away all the same" bash -c "cd '$T' && penstock umount m3"
rc=0
penstock umount by-hnad >"$T/out" 2>&1 || rc=$?
equal "umount tells the one that was meant" "1 1" "$rc $(grep -cF "by-hnad: there is no such folder; there is no [by-hnad] in $conf; did you mean [by-hand]?" "$T/out")"
rc=0
penstock mount by-hnad >"$T/out" 2>&1 || rc=$?
equal "with the one that was meant" "2 1" "$rc $(grep -cF "no [by-hnad] in $conf; did you mean [by-hand]?" "$T/out")"

# A broken one of many.
sed -i "s|^source = $ORIGIN/|source = $ORIGIN/nothing/|; s|^  source = $ORIGIN/|source = $ORIGIN/nothing/|" "$conf"
rc=0
penstock mount -a >"$T/out" 2>&1 || rc=$?
equal "one that cannot be mounted is told" "1 1" "$rc $(wc -l <"$T/out")"
check "the others are mounted" is_mounted "$T/m2"
penstock umount -a

wrong() { # PATTERN LINE...
	local pattern=$1 rc=0
	shift
	{ printf '[x]\nsource = %s/src/\nmountpoint = %s/m1\n' "$T" "$T" && printf '%s\n' "$@"; } >"$T/wrong.conf"
	chmod "${mode-600}" "$T/wrong.conf"
	penstock mount x --config "$T/wrong.conf" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
	equal "$*$pattern" "2 1 0" "$rc $(grep -cE "^penstock mount: $T/wrong.conf$pattern" "$T/out") $(grep -c geheim "$T/out")"
}
wrong ":4: unknown key 'cache-siez'; did you mean 'cache-size'" "cache-siez = 3G"
printf '[x]\nmountpoint = %s/m1\n' "$T" >"$T/wrong.conf"
chmod 600 "$T/wrong.conf"
check_not "a section without a source is refused" penstock mount x --config "$T/wrong.conf" --cache-dir "$CACHE"
penstock mount x --config "$T/wrong.conf" --cache-dir "$CACHE" >"$T/out" 2>&1 || true
equal "in words" "penstock mount: $T/wrong.conf:1: [x] has no source" "$(cat "$T/out")"
wrong ":4: unknown key 'flurb'$" "flurb = 1"
wrong ":4: unknown key 'foo'$" "foo = 1"
wrong ":4: unknown key 'lof'; did you mean 'log'" "lof = x"
wrong ":4: option cache-size: 'lots'" "cache-size = lots"
wrong ":4: allow_other is yes or no" "allow_other = perhaps"
wrong ":4: neither \[NAME\] nor KEY = VALUE" "just words"
wrong ":5: no '\]'" "" "[y"
wrong ":4: a second \[x\]" "[x]"
wrong ":4: a name in brackets" "[a/b]"
wrong ":4: mountpoint stands in line 3" "mountpoint = /elsewhere"
wrong ":4: there is no source.val" "val.cacert = /x"
wrong ":5: unknown key 'cacrt'; did you mean 'cacert'" "source.val = /x/" "val.cacrt = /x"
wrong ":5: cache-size is not of one source" "source.val = /x/" "val.cache-size = 1G"
wrong ":4: a source is a URL" "source.val = relative/"
wrong ":4: .*not a name for a folder" "source.a/b = /x/"
wrong ":4: .*/no-such-file" "user-file = /no-such-file"
wrong ":4: option user: not of the form" "user = geheim"
head -c 5000 /dev/zero | tr '\0' x >"$T/long"
wrong ":4: $T/long: longer than 4 KiB" "user-file = $T/long"
wrong ":4: unknown key 'foreground'" "foreground = yes"
wrong ":4: option region: it is for buckets \(s3://, gs://\), which file://$T/src/ is not" "region = eu"
wrong ":4: option insecure: it is for sources that are not local, which file://$T/src/ is not" "insecure = yes"
wrong ":5: option hf-token-file: it is for hf://.*, which s3://b/ is not" "source.val = s3://b/" "val.hf_token_file = /x"
wrong ":5: option gs-credentials: .* none of 2 sources is" "source.val = s3://b/" "gs-credentials = /x"
# What [defaults] says is for those mounts that know what it is; the command line is for this one.
printf '[defaults]\nregion = eu\n[x]\nsource = %s/src/\nmountpoint = %s/m1\nno-sign-request = no\n' "$T" "$T" >"$T/vain.conf"
check "options of other sources may stand in [defaults], or be switched off" penstock mount x --config "$T/vain.conf" --cache-dir "$CACHE"
check "the mount goes" penstock umount "$T/m1"
rc=0
penstock mount x --config "$T/vain.conf" --cache-dir "$CACHE" --region us >"$T/out" 2>&1 || rc=$?
equal "one of the command line that is for other sources" "2 1" "$rc $(grep -c "^penstock mount: option region: it is for buckets" "$T/out")"
mode=640
wrong ":4: header holds a secret, and others may read" "header = X: geheim"
wrong ":4: source.val holds a secret" "source.val = https://me:geheim@host/"
unset mode
printf '[x]\nsource = /\0x\n' >"$T/wrong.conf"
rc=0
penstock mount x --config "$T/wrong.conf" >"$T/out" 2>&1 || rc=$?
equal "bytes that are no text" "2 1" "$rc $(grep -c "not a text" "$T/out")"
echo "[x]" >"$T/wrong.conf"
chmod 666 "$T/wrong.conf"
rc=0
penstock mount x --config "$T/wrong.conf" >"$T/out" 2>&1 || rc=$?
equal "one that everybody may write" "1 1" "$rc $(grep -c "world-writable; chmod o-w it first" "$T/out")"
rc=0
penstock mount x --config "$T/none.conf" >"$T/out" 2>&1 || rc=$?
equal "one that is not there" "1 1" "$rc $(grep -c "there is no mount named x: .*none.conf: No such file" "$T/out")"
rc=0
penstock mount imagenet "$MNT" --cache-dir "$T/cache-none" >"$T/out" 2>&1 || rc=$?
equal "a word that is neither source nor name" "2 1" "$rc $(grep -c "nor a mount of penstock.conf(5): there is no \[imagenet\] in $conf" "$T/out")"
rc=0
PENSTOCK_CONFIG=$T/none.conf penstock mount imagenet "$MNT" --cache-dir "$T/cache-none" >"$T/out" 2>&1 || rc=$?
equal "without a configuration" "2 1" "$rc $(grep -c "penstock.conf(5): $T/none.conf: No such file" "$T/out")"
rc=0
env -u PENSTOCK_CONFIG HOME="$T/none" XDG_CONFIG_HOME= penstock mount imagenet --cache-dir "$T/cache-none" >"$T/out" 2>&1 || rc=$?
[[ -e /etc/penstock.conf ]] || equal "a name, and no configuration at all" "1 1" \
	"$rc $(grep -c "no mount named imagenet: no penstock.conf in .* to mount a source: penstock mount .*MOUNTPOINT" "$T/out")"
check "the cache is free" penstock verify --cache-dir "$CACHE"
