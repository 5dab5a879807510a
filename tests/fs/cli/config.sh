#!/usr/bin/env bash
# penstock.conf(5): mounts by name, all mounts at once, mounts through mount(8). Errors in the file are
# reported with their line.
. "$(dirname "$0")/../../lib.sh"
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
token.header = @$T/headers
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

check "mount --all succeeds" penstock mount --all
check "the mount 'one' serves its file" cmp "$T/m1/f.bin" "$T/www/f.bin"
equal "'one' has the file mode of [defaults]" 440 "$(stat -c %a "$T/m1/f.bin")"
equal "'two' has a folder for each of its sources" "basic local token" "$(cd "$T/m2" && echo *)"
check "a source of 'two' has its own credentials" cmp "$T/m2/token/f.bin" "$T/www/f.bin"
check "a source of 'two' has its own certificates" cmp "$T/m2/basic/sub/s.bin" "$T/www/sub/s.bin"
equal "'two' has its own file mode" 400 "$(stat -c %a "$T/m2/local/l.bin")"
equal "one daemon serves both" 1 "$(jq .pid "$T"/m{1,2}/.penstock/stats | sort -u | wc -l)"
check_not "mount --all leaves out a mount with auto = no" is_mounted "$T/m3"
check "mount --all succeeds again" penstock mount --all
equal "each is mounted once" 2 "$(penstock status --cache-dir "$CACHE" --json | jq '.mounts | length')"
check_not "no secret is in the log" grep -q "pass:word\|secret" "$T/penstock.log"
check "the log warns of a user file that all may read" \
	grep -q "warning: $T/user: every user of this machine may read it" "$T/penstock.log"
chmod 600 "$T/user" "$T/headers"
check "mount NAME succeeds" penstock mount by-hand
check "the mount of 'mount NAME' serves its file" cmp "$T/m3/l.bin" "$T/src/l.bin"
check "umount NAME succeeds" penstock umount by-hand
check "mount NAME takes another mountpoint and another option" penstock mount by-hand "$MNT" --file-mode 0404
equal "the command line overrides the configuration" 404 "$(stat -c %a "$MNT/l.bin")"
check "umount --all succeeds" penstock umount --all
check_not "umount --all unmounts the first" is_mounted "$T/m1"
check_not "umount --all unmounts the second" is_mounted "$T/m2"
check "umount --all leaves a mount at another mountpoint" is_mounted
umount_penstock
ln -s "$top_builddir/penstock" "$T/mount.penstock"
check "mount.penstock mounts, called as mount(8) does for fstab" \
	"$T/mount.penstock" by-hand "$T/m3" -o "rw,_netdev,nofail,x-systemd.automount,uid=7"
equal "the mount has the options of fstab" "7 440" "$(stat -c '%u %a' "$T/m3/l.bin")"
penstock umount "$T/m3"
if ((EUID == 0)) && [[ $(readlink -f /sbin/mount.penstock 2>/dev/null) == "$top_builddir/penstock" ]]; then
	echo "by-hand $T/m3 penstock noauto 0 0" >"$T/fstab"
	check "mount(8) mounts a name of fstab" mount -T "$T/fstab" "$T/m3"
	penstock umount "$T/m3"
fi
rc=0
penstock mount nowhere >"$T/out" 2>&1 || rc=$?
equal "a mount without a mountpoint is refused with the reason" \
	"2 1" "$rc $(grep -c "has no mountpoint" "$T/out")"
rc=0
penstock mount no-such >"$T/out" 2>&1 || rc=$?
equal "the error of an unknown name has the file" "2 1" "$rc $(grep -cF "no [no-such] in $conf" "$T/out")"
check "a source is mounted at a mountpoint that is not in the configuration" \
	bash -c "cd '$T' && penstock mount src/ m3 --cache-dir '$T/own' --log '$T/own.log'"
kill_daemon "$(jq .pid "$T/m3/.penstock/stats")"
check "the mount is dead once its daemon is killed" wait_until 10 bash -c "! ls '$T/m3'"
check "umount removes the dead mount" bash -c "cd '$T' && penstock umount m3"
rc=0
penstock umount by-hnad >"$T/out" 2>&1 || rc=$?
equal "umount suggests the name that was meant" \
	"1 1" "$rc $(grep -cF "by-hnad: there is no such folder; there is no [by-hnad] in $conf; did you mean [by-hand]?" "$T/out")"
rc=0
penstock mount by-hnad >"$T/out" 2>&1 || rc=$?
equal "mount suggests the name that was meant" \
	"2 1" "$rc $(grep -cF "no [by-hnad] in $conf; did you mean [by-hand]?" "$T/out")"

# One of several mounts fails.
sed -i "s|^source = $ORIGIN/|source = $ORIGIN/nothing/|; s|^  source = $ORIGIN/|source = $ORIGIN/nothing/|" "$conf"
rc=0
penstock mount -a >"$T/out" 2>&1 || rc=$?
equal "mount -a reports the mount that fails" "1 1" "$rc $(wc -l <"$T/out")"
check "mount -a mounts the others" is_mounted "$T/m2"
penstock umount -a

wrong() { # PATTERN LINE...
	local pattern=$1 rc=0
	shift
	{ printf '[x]\nsource = %s/src/\nmountpoint = %s/m1\n' "$T" "$T" && printf '%s\n' "$@"; } >"$T/wrong.conf"
	chmod "${mode-600}" "$T/wrong.conf"
	penstock mount x --config "$T/wrong.conf" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
	equal "'$*' gives the error $pattern" \
		"2 1 0" "$rc $(grep -cE "^penstock mount: $T/wrong.conf$pattern" "$T/out") $(grep -c geheim "$T/out")"
}
wrong ":4: unknown key 'cache-siez'; did you mean 'cache-size'" "cache-siez = 3G"
printf '[x]\nmountpoint = %s/m1\n' "$T" >"$T/wrong.conf"
chmod 600 "$T/wrong.conf"
check_not "a section without a source is refused" penstock mount x --config "$T/wrong.conf" --cache-dir "$CACHE"
penstock mount x --config "$T/wrong.conf" --cache-dir "$CACHE" >"$T/out" 2>&1 || true
equal "the error says that the section has no source" \
	"penstock mount: $T/wrong.conf:1: [x] has no source" "$(cat "$T/out")"
wrong ":4: unknown key 'flurb'$" "flurb = 1"
wrong ":4: unknown key 'foo'$" "foo = 1"
wrong ":4: unknown key 'lof'; did you mean 'log'" "lof = x"
wrong ":4: option cache-size: 'lots'" "cache-size = lots"
wrong ":4: allow_other is yes or no" "allow_other = perhaps"
wrong ":4: the line is neither \[NAME\] nor KEY = VALUE" "cache-size"
printf '[x]\nsource = %s/src/\nmountpoint = %s/m1\nallow_other\nauto\n' "$T" "$T" >"$T/bare.conf"
check "a key without a value means yes" penstock mount x --config "$T/bare.conf" --cache-dir "$CACHE"
check "allow_other holds" grep -q " $T/m1 .*allow_other" /proc/mounts
penstock umount "$T/m1"
wrong ":4: the line is neither \[NAME\] nor KEY = VALUE" "just words"
wrong ":5: the line has no '\]'" "" "[y"
wrong ":4: \[x\] is defined twice" "[x]"
wrong ":4: a name in brackets" "[a/b]"
wrong ":4: mountpoint is in line 3" "mountpoint = /elsewhere"
wrong ":4: there is no source.val" "val.cacert = /x"
wrong ":5: unknown key 'cacrt'; did you mean 'cacert'" "source.val = /x/" "val.cacrt = /x"
wrong ":5: cache-size cannot be set for one source" "source.val = /x/" "val.cache-size = 1G"
wrong ":4: a source is a URL" "source.val = relative/"
wrong ":4: .*not a name for a folder" "source.a/b = /x/"
wrong ":4: .*/no-such-file" "user-file = /no-such-file"
wrong ":4: option user: not of the form" "user = geheim"
head -c 5000 /dev/zero | tr '\0' x >"$T/long"
wrong ":4: $T/long: longer than 4 KiB" "user-file = $T/long"
wrong ":4: unknown key 'foreground'" "foreground = yes"
wrong ":4: option region: it is for buckets \(s3://, gs://\), which file://$T/src/ is not" "region = eu"
wrong ":4: option insecure: it is for sources that are not local, which file://$T/src/ is not" "insecure = yes"
wrong ":5: option credentials: it is for gs://.*, which s3://b/ is not" "source.val = s3://b/" "val.credentials = /x"
wrong ":5: option credentials: .* none of 2 sources is" "source.val = s3://b/" "credentials = /x"
wrong ":4: option gs-credentials no longer exists: write credentials=FILE" "gs-credentials = /x"
wrong ":4: option header-file no longer exists: write header=@FILE" "header_file = /x"
wrong ":4: option policy: 'scan' no longer exists: plan does the same" "policy = scan"
# Options in [defaults] are ignored for mounts to which they do not apply; on the command line they are
# refused.
printf '[defaults]\nregion = eu\n[x]\nsource = %s/src/\nmountpoint = %s/m1\nno-sign-request = no\n' "$T" "$T" >"$T/vain.conf"
check "options of other sources may be in [defaults], or be switched off" \
	penstock mount x --config "$T/vain.conf" --cache-dir "$CACHE"
check "a mount with other options in [defaults] is unmounted" penstock umount "$T/m1"
rc=0
penstock mount x --config "$T/vain.conf" --cache-dir "$CACHE" --region us >"$T/out" 2>&1 || rc=$?
equal "on the command line an option of other sources is refused" \
	"2 1" "$rc $(grep -c "^penstock mount: option region: it is for buckets" "$T/out")"
mode=640
wrong ":4: header holds a secret, and others may read" "header = X: geheim"
wrong ":4: source.val holds a secret" "source.val = https://me:geheim@host/"
unset mode
printf '[x]\nsource = /\0x\n' >"$T/wrong.conf"
rc=0
penstock mount x --config "$T/wrong.conf" >"$T/out" 2>&1 || rc=$?
equal "a configuration with a NUL byte is refused" "2 1" "$rc $(grep -c "not a text" "$T/out")"
echo "[x]" >"$T/wrong.conf"
chmod 666 "$T/wrong.conf"
rc=0
penstock mount x --config "$T/wrong.conf" >"$T/out" 2>&1 || rc=$?
equal "a world-writable configuration is refused" \
	"1 1" "$rc $(grep -c "world-writable; chmod o-w it first" "$T/out")"
rc=0
penstock mount x --config "$T/none.conf" >"$T/out" 2>&1 || rc=$?
equal "a missing configuration is reported" \
	"1 1" "$rc $(grep -c "there is no mount named x: .*none.conf: No such file" "$T/out")"
rc=0
penstock mount imagenet "$MNT" --cache-dir "$T/cache-none" >"$T/out" 2>&1 || rc=$?
equal "a word that is neither source nor name is refused" \
	"2 1" "$rc $(grep -c "nor a mount of penstock.conf(5): there is no \[imagenet\] in $conf" "$T/out")"
rc=0
PENSTOCK_CONFIG=$T/none.conf penstock mount imagenet "$MNT" --cache-dir "$T/cache-none" >"$T/out" 2>&1 || rc=$?
equal "the error names the missing configuration" \
	"2 1" "$rc $(grep -c "penstock.conf(5): $T/none.conf: No such file" "$T/out")"
rc=0
env -u PENSTOCK_CONFIG HOME="$T/none" XDG_CONFIG_HOME= penstock mount imagenet --cache-dir "$T/cache-none" >"$T/out" 2>&1 || rc=$?
[[ -e /etc/penstock.conf ]] || equal "a name without any configuration is refused" "1 1" \
	"$rc $(grep -c "no mount named imagenet: no penstock.conf in .* to mount a source: penstock mount .*MOUNTPOINT" "$T/out")"
check "the cache is not in use" penstock verify --cache-dir "$CACHE"
