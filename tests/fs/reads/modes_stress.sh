#!/usr/bin/env bash
# Many processes open, read, map and close files in every way while the files become complete and are evicted.
# No call fails, whatever open modes one inode has at a time.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx slow

mkdir -p "$T/www"
for i in 1 2 3 4 5; do
	random_file "$T/www/$i.bin" $((i * 1700333)) "$i"
done
start_nginx
seconds=1
! long || seconds=4

for options in "" --cold-reads=direct --cold-reads=cached --no-passthrough; do
	# shellcheck disable=SC2086
	mount_penstock "$ORIGIN/" --timeout 30s $options
	check "no call fails with '$options'" timeout 60 "$python" "$top_srcdir/tests/fs/reads/stress_modes.py" \
		"$MNT" "$T/www" "$seconds" 8
	echo "# $(stats '.mounts[0].modes | tostring')"
	check "no handle is open at the end with '$options'" wait_until 5 "$BASH" -c \
		"jq -e '[.mounts[0].modes[] | objects | .open] | add == 0' '$MNT/.penstock/stats'"
	equal "the log has no error or warning with '$options'" "" \
		"$(grep -E ' (error|warning): ' "$T/penstock.log" || true)"
	umount_penstock
	rm -rf "$CACHE"
done
