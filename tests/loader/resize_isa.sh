#!/usr/bin/env bash
# Every vector unit gives the same bytes: the units of this machine and, with a cross compiler and qemu, NEON
# of 64-bit ARM.
. "$(dirname "$0")/../lib.sh"

hash=$top_builddir/tests/loader/resize_hash
want=$("$hash" portable)

for unit in avx2 neon; do
	if seen=$("$hash" "$unit"); then
		equal "$unit gives the bytes of portable C" "$want" "$seen"
	else
		skip "$unit gives the bytes of portable C" "this machine has no $unit"
	fi
done

what="NEON on an emulated 64-bit ARM gives the bytes of portable C here"
if command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null; then
	image=$top_srcdir/loader/image
	aarch64-linux-gnu-gcc -static -O2 -std=gnu11 -Wall -Wextra -Werror -ffp-contract=off -I"$top_srcdir" -I"$top_srcdir/loader" -I"$top_srcdir/loader/include" \
		-o "$T/arm" "$top_srcdir/tests/loader/resize_hash.c" "$image/resize.c" \
		"$image/resize_portable.c" "$image/resize_neon.c" -lm
	equal "$what" "$want" "$(qemu-aarch64 "$T/arm" neon)"
	equal "portable C on an emulated 64-bit ARM gives the same bytes" "$want" \
		"$(qemu-aarch64 "$T/arm" portable)"
else
	skip "$what" "there is no aarch64-linux-gnu-gcc or no qemu-aarch64"
fi
