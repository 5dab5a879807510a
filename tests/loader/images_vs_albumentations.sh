#!/usr/bin/env bash
# Blur and noise by ranges and OneOf, which torchvision has not, against Albumentations.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../lib.sh"
requires slow python:numpy python:PIL
long || skip_all "its packages take long to get: scripts/check --all runs it"
pip_python albumentations albumentations==2.0.8

export NO_ALBUMENTATIONS_UPDATE=1
"$python" "$top_srcdir/tests/loader/image_ops_vs_albumentations.py" >"$T/out" 2>&1 || true
# shellcheck disable=SC2094 # it is only read
while read -r line; do
	case $line in
		"ok "*) pass "${line#*- }" ;;
		"not ok "*) fail "${line#*- }" "$(grep -F -A 5 "$line" "$T/out")" ;;
	esac
done <"$T/out"
equal "all of them ran" 5 "$(grep -cE '^(not )?ok ' "$T/out")"
