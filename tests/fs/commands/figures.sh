#!/usr/bin/env bash
# The documents of mounts have every figure of the table (base/figure_table.h), and no other.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq

figures=$top_builddir/tests/fs/unit/figures_test
mkdir -p "$T/www" "$T/members" "$T/sources"
random_file "$T/www/a.bin" 100000
tar -C "$T/www" -cf "$T/www/b.tar" a.bin
start_nginx
mount_penstock "$ORIGIN/" --tier http://127.0.0.1:9
check "a mount with members joins" penstock mount "$T/www/" "$T/members" --cache-dir "$CACHE" --members
check "a mount with named sources joins" \
	penstock mount "one=$T/www/" "$T/sources" --cache-dir "$CACHE"
cat "$MNT/a.bin" >/dev/null
echo a.bin | penstock plan "$MNT" --job figures &
plan=$!
planned() { [[ $(stats .plans.active) == 1 ]]; }
check "a plan is announced" wait_until 10 planned
jq -r 'paths | map(if type == "number" then "[]" else . end) | join(".") | gsub("\\.\\[\\]"; "[]")' \
	"$MNT/.penstock/stats" | grep -v '\[\]$\|latency_seconds\.\|^mounts\[\]\.sources\[\]' | sort -u >"$T/seen"
# daemon/owners.sh has the figure of --owner.
"$figures" --paths | grep -vx "mounts\[\]\.owners" | sort >"$T/table"
# Objects have no row of their own, but tier.
equal "every figure of the table is in the documents" "" "$(comm -23 "$T/table" "$T/seen")"
equal "the documents have no other" \
	"cache inflate memory mounts[].members mounts[].modes mounts[].modes.cached mounts[].modes.direct
mounts[].modes.passed mounts[].passthrough mounts[].reads opens origin passthrough plans reads sandbox" \
	"$(comm -13 "$T/table" "$T/seen" | paste -sd ' ' | fold -sw 110 | sed 's/ $//')"
kill "$plan"
wait "$plan" 2>/dev/null || true
check "the mount with members is unmounted" penstock umount "$T/members"
check "the mount with named sources is unmounted" penstock umount "$T/sources"

# Texts with figures ({PATH}, [IF:TEXT]: fs/cli/figure_text.h) name figures of the table.
"$figures" --paths >"$T/table"
unknown=()
path='/?[a-z_]+(\.[a-z_]+)*'
mapfile -t words < <(cd "$top_srcdir/fs/cli" && grep -ohE -e "\{[#%]?$path([%+]$path)*}" \
	-e "\[!?$path([+<]$path)*[?:=>]" cmd_status.c live.c | grep -oE "$path" | sort -u)
for word in "${words[@]}"; do
	case $word in
	/*) grep -qxF "${word#/}" "$T/table" ;;
	*) grep -qxE "(mounts\[\]|plans\.ranks\[\]|mounts\[\]\.tier\.tiers\[\])\.${word//./\\.}" "$T/table" ;;
	esac || unknown+=("$word")
done
at_least "status and its screen name figures" 60 "${#words[@]}"
equal "each of them is in the table" "" "${unknown[*]}"
