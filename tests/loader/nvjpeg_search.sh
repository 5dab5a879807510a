#!/usr/bin/env bash
# Where nvJPEG is looked for, and what is said where there is none; over the stand-ins for it and for the
# driver.
. "$(dirname "$0")/../lib.sh"

lib=$top_builddir/tests/loader/.libs
venv=$T/venv/lib/python3.11/site-packages/nvidia/nvjpeg/lib
mkdir -p "$T/driver" "$T/linker" "$venv" "$T/photos"
cp -L "$lib/libmockcuda.so" "$T/driver/libcuda.so.1"
cp -L "$lib/libmocknvjpeg.so" "$T/linker/libnvjpeg.so.13"
cp -L "$lib/libmocknvjpeg.so" "$venv/libnvjpeg.so.12"
for photo in "$top_srcdir"/tests/data/photos/*.jpg; do
	cp "$photo" "$T/photos/$(basename "$photo" | tr . _ | sed 's/_jpg$/.jpg/')"
done
(cd "$T/photos" && tar cf ../photos.tar -- *.jpg)
export LD_LIBRARY_PATH=$T/driver
if ! grep -q 'define HAVE_CUDA_KERNELS 1' "$top_builddir/config.h"; then
	echo kernels >"$T/kernels"
	export PENSTOCK_CUDA_KERNELS=$T/kernels
fi
unset VIRTUAL_ENV CONDA_PREFIX CUDA_HOME CUDA_PATH PENSTOCK_NVJPEG

# bench [VAR=VALUE...] -- ARGUMENT...: its exit code; what it says is in out and err.
bench() {
	local rc=0 env=()
	while [[ $1 != -- ]]; do
		env+=("$1")
		shift
	done
	shift
	env "${env[@]}" penstock-loader bench --device cuda --batch 4 --image 32 --epochs 1 --lanes 1 "$@" \
		"$T/photos.tar" \
		>"$T/out" 2>"$T/err" || rc=$?
	echo "$rc"
}

equal "found where the linker looks: ends well" 0 \
	"$(bench "LD_LIBRARY_PATH=$T/driver:$T/linker" -- --gpu-decode 1 --json)"
check "and its engine decodes" grep -Eq '"engine_images": [1-9]' "$T/out"
bench HOME=/nonexistent -- --gpu-decode auto >/dev/null
if ! grep -q 'decodes nothing: nvJPEG: no libnvjpeg' "$T/out"; then
	skip "found in a Python environment" "this machine has an nvJPEG of its own"
else
	equal "found in a Python environment: ends well" 0 \
		"$(bench "VIRTUAL_ENV=$T/venv" HOME=/nonexistent -- --gpu-decode 0.5 --json)"
	check "and its engine decodes there" grep -Eq '"engine_images": [1-9]' "$T/out"
	check "but not everything" grep -Eq '"cpu_images": [1-9]' "$T/out"
	mkdir -p "$T/tv/bin" "$T/tv/lib/python3.12/site-packages/torchvision.libs"
	cp -L "$lib/libmocknvjpeg.so" "$T/tv/lib/python3.12/site-packages/torchvision.libs/libnvjpeg.36e11081.so.13"
	equal "found in torchvision, of a Python that PATH has: ends well" 0 \
		"$(bench "PATH=$PATH:$T/tv/bin" HOME=/nonexistent -- --gpu-decode 0.5 --json)"
	check "and it is told which" grep -q '"library": ".*/torchvision.libs/libnvjpeg.36e11081.so.13"' \
		"$T/out"
	equal "found on PYTHONPATH: ends well" 0 \
		"$(bench "PYTHONPATH=relative:/nonexistent:${venv%%/nvidia/*}" HOME=/nonexistent -- --gpu-decode 0.5 --json)"
	check "and it is told which" grep -q '"library": ".*/nvidia/nvjpeg/lib/libnvjpeg.so.12"' "$T/out"
fi
equal "named: ends well" 0 "$(bench "PENSTOCK_NVJPEG=$venv/libnvjpeg.so.12" -- --gpu-decode 1)"
check "and the report tells of it" grep -q 'decoded by its engine' "$T/out"
check_not "a share without nvJPEG: bench fails" test 0 = \
	"$(bench PENSTOCK_NVJPEG=/nonexistent/libnvjpeg.so -- --gpu-decode 1)"
check "and says which was not found" grep -q 'PENSTOCK_NVJPEG.*/nonexistent/libnvjpeg.so' "$T/err"
equal "auto without nvJPEG: the processor decodes" 0 \
	"$(bench PENSTOCK_NVJPEG=/nonexistent/libnvjpeg.so -- --gpu-decode auto)"
check "and the report says why" grep -q 'the GPU decodes nothing: .*nonexistent' "$T/out"
check_not "a share beyond 1 is refused" test 0 = "$(bench -- --gpu-decode 2)"
check "with what it must be" grep -q 'must be auto, or 0 to 1' "$T/err"

# One that cannot be used makes way for the next.
mkdir "$T/does-not-start" "$T/no-memory" "$T/no-functions" "$T/no-library" "$T/older"
cp -L "$lib/libmocknvjpeg.so" "$T/does-not-start/libnvjpeg.so.13"
cp -L "$lib/libmocknvjpeg.so" "$T/no-memory/libnvjpeg.so.13"
cp -L "$lib/libmockcuda.so" "$T/no-functions/libnvjpeg.so.13"
echo "no library at all" >"$T/no-library/libnvjpeg.so.13"
cp -L "$lib/libmocknvjpeg.so" "$T/older/libnvjpeg.so.12"
while read -r folder why; do
	equal "$folder: the next is tried" 0 \
		"$(bench "LD_LIBRARY_PATH=$T/driver:$T/$folder:$T/older" -- --gpu-decode 1 --json)"
	check "$folder: and decodes" grep -Eq '"engine_images": [1-9]' "$T/out"
	check "$folder: it is told which" grep -q '"library": ".*/older/libnvjpeg.so.12"' "$T/out"
	check "$folder: and what was refused, and why" grep \
		-Eq "\"refused\": \".*/$folder/libnvjpeg.so.13: $why" "$T/out"
done <<'END'
does-not-start it does not start on this GPU and driver: not initialised
no-functions it has no nvjpeg
no-library .*(file too short|invalid ELF header)
END
equal "for people: ends well" 0 "$(bench "LD_LIBRARY_PATH=$T/driver:$T/does-not-start:$T/older" -- --gpu-decode auto)"
check "the report says what decodes" grep -q '^nvJPEG: .*/older/libnvjpeg.so.12' "$T/out"
check "and what cannot" grep -q '^nvJPEG that cannot be used here: .*/does-not-start/libnvjpeg.so.13: .*status 1' "$T/out"
check_not "a named one that does not start: bench fails" test 0 = \
	"$(bench "PENSTOCK_NVJPEG=$T/does-not-start/libnvjpeg.so.13" "LD_LIBRARY_PATH=$T/driver:$T/older" -- --gpu-decode 1)"
check "and says so" grep -q 'PENSTOCK_NVJPEG: .*does-not-start/libnvjpeg.so.13: it does not start' "$T/err"
check_not "without memory no other library steps in" test 0 = \
	"$(bench "LD_LIBRARY_PATH=$T/driver:$T/no-memory:$T/older" -- --gpu-decode auto)"
check "and it is said" grep -q 'no-memory/libnvjpeg.so.13: it does not start .*out of memory' "$T/err"
bench "LD_LIBRARY_PATH=$T/driver:$T/does-not-start" HOME=/nonexistent -- --gpu-decode auto >/dev/null
if grep -q 'decodes nothing' "$T/out"; then
	check "none starts: the report names it" grep -q \
		'decodes nothing: nvJPEG: no library on this machine can be used: .*does-not-start' "$T/out"
	check_not "none starts: a share fails" test 0 = \
		"$(bench "LD_LIBRARY_PATH=$T/driver:$T/does-not-start" HOME=/nonexistent -- --gpu-decode 1)"
	check "and says why, and what to do" grep -q 'status 1). Install one' "$T/err"
else
	skip "none starts" "this machine has an nvJPEG of its own"
fi

# From Python: the packages' one is loaded, but not beside another that the process has.
cat >"$T/load.py" <<'END'
import ctypes, importlib.util, sys

spec = importlib.util.spec_from_file_location("nvjpeg", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.path.insert(0, sys.argv[2])
for name in sys.argv[3:]:
    ctypes.CDLL(name)
module.load()
sys.exit(sys.argv[2] not in open("/proc/self/maps").read())
END
py_load() {
	LD_LIBRARY_PATH=$T/driver:$T/linker "$python" "$T/load.py" \
		"$top_srcdir/loader/python/penstock/nvjpeg.py" \
		"${venv%%/nvidia/*}" "$@" 2>"$T/err"
}
if sanitized "$lib/libmocknvjpeg.so"; then
	skip "loaded by Python" "a sanitizer's runtime is not in the interpreter"
else
	check "loaded by Python from its packages" py_load
	check_not "not beside one that is loaded" py_load libnvjpeg.so.13
	check "which is no failure" test ! -s "$T/err"
fi
