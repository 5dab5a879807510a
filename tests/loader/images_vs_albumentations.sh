#!/usr/bin/env bash
# Compares with Albumentations what torchvision lacks: blur and noise with sizes and sigmas drawn from ranges,
# and OneOf.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../lib.sh"
requires slow python:numpy python:PIL
long || skip_all "its packages take long to install: scripts/check --all runs it"
pip_python albumentations albumentations==2.0.8

export NO_ALBUMENTATIONS_UPDATE=1
"$python" "$top_srcdir/tests/loader/image_ops_vs_albumentations.py" >"$T/out" 2>&1 || true
# shellcheck disable=SC2094 # the file is only read
while read -r line; do
	case $line in
		"ok "*) pass "${line#*- }" ;;
		"not ok "*) fail "${line#*- }" "$(grep -F -A 5 "$line" "$T/out")" ;;
	esac
done <"$T/out"
equal "all tests of image_ops_vs_albumentations.py ran" 5 "$(grep -cE '^(not )?ok ' "$T/out")"
