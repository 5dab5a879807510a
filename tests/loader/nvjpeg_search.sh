#!/usr/bin/env bash
# Where nvJPEG is looked for, and what is reported if there is none; run with mocks of nvJPEG and the driver.
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

# bench [VAR=VALUE...] -- ARGUMENT...: prints its exit code; its output is in $T/out and $T/err.
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

equal "nvJPEG is found by the dynamic linker" 0 \
	"$(bench "LD_LIBRARY_PATH=$T/driver:$T/linker" -- --gpu-decode 1 --json)"
check "the engine of the linker's nvJPEG decodes" grep -Eq '"engine_images": [1-9]' "$T/out"
bench HOME=/nonexistent -- --gpu-decode auto >/dev/null
if ! grep -q 'decodes nothing: nvJPEG: no libnvjpeg' "$T/out"; then
	skip "nvJPEG is found in a Python environment" "this machine has an nvJPEG of its own"
else
	equal "nvJPEG is found in a Python environment" 0 \
		"$(bench "VIRTUAL_ENV=$T/venv" HOME=/nonexistent -- --gpu-decode 0.5 --json)"
	check "the engine of the Python environment's nvJPEG decodes" grep -Eq \
		'"engine_images": [1-9]' "$T/out"
	check "with a share of 0.5 the CPU decodes the rest" grep -Eq '"cpu_images": [1-9]' "$T/out"
	mkdir -p "$T/tv/bin" "$T/tv/lib/python3.12/site-packages/torchvision.libs"
	cp -L "$lib/libmocknvjpeg.so" "$T/tv/lib/python3.12/site-packages/torchvision.libs/libnvjpeg.36e11081.so.13"
	equal "nvJPEG is found in the torchvision of a Python in PATH" 0 \
		"$(bench "PATH=$PATH:$T/tv/bin" HOME=/nonexistent -- --gpu-decode 0.5 --json)"
	check "the report names the library in torchvision" grep -q \
		'"library": ".*/torchvision.libs/libnvjpeg.36e11081.so.13"' "$T/out"
	equal "nvJPEG is found on PYTHONPATH" 0 \
		"$(bench "PYTHONPATH=relative:/nonexistent:${venv%%/nvidia/*}" HOME=/nonexistent -- --gpu-decode 0.5 --json)"
	check "the report names the library on PYTHONPATH" grep -q \
		'"library": ".*/nvidia/nvjpeg/lib/libnvjpeg.so.12"' "$T/out"
fi
equal "nvJPEG is found by PENSTOCK_NVJPEG" 0 \
	"$(bench "PENSTOCK_NVJPEG=$venv/libnvjpeg.so.12" -- --gpu-decode 1)"
check "the report counts images of the engine" grep -q 'decoded by its engine' "$T/out"
check_not "bench with a share fails without nvJPEG" test 0 = \
	"$(bench PENSTOCK_NVJPEG=/nonexistent/libnvjpeg.so -- --gpu-decode 1)"
check "the error names the library that was not found" grep -q \
	'PENSTOCK_NVJPEG.*/nonexistent/libnvjpeg.so' "$T/err"
equal "with auto and without nvJPEG the CPU decodes" 0 \
	"$(bench PENSTOCK_NVJPEG=/nonexistent/libnvjpeg.so -- --gpu-decode auto)"
check "the report says why the GPU decodes nothing" grep -q 'the GPU decodes nothing: .*nonexistent' "$T/out"
check_not "a share over 1 is refused" test 0 = "$(bench -- --gpu-decode 2)"
check "the error names the range of a share" grep -q 'must be auto, or 0 to 1' "$T/err"

# If a library cannot be used, the next one is tried.
mkdir "$T/does-not-start" "$T/no-memory" "$T/no-functions" "$T/no-library" "$T/older"
cp -L "$lib/libmocknvjpeg.so" "$T/does-not-start/libnvjpeg.so.13"
cp -L "$lib/libmocknvjpeg.so" "$T/no-memory/libnvjpeg.so.13"
cp -L "$lib/libmockcuda.so" "$T/no-functions/libnvjpeg.so.13"
echo "no library at all" >"$T/no-library/libnvjpeg.so.13"
cp -L "$lib/libmocknvjpeg.so" "$T/older/libnvjpeg.so.12"
while read -r folder why; do
	equal "$folder: the next library is tried" 0 \
		"$(bench "LD_LIBRARY_PATH=$T/driver:$T/$folder:$T/older" -- --gpu-decode 1 --json)"
	check "$folder: the next library decodes" grep -Eq '"engine_images": [1-9]' "$T/out"
	check "$folder: the report names the library that decodes" grep -q \
		'"library": ".*/older/libnvjpeg.so.12"' "$T/out"
	check "$folder: the report says why the first library was refused" grep \
		-Eq "\"refused\": \".*/$folder/libnvjpeg.so.13: $why" "$T/out"
done <<'END'
does-not-start it does not start on this GPU and driver: not initialised
no-functions it has no nvjpeg
no-library .*(file too short|invalid ELF header)
END
equal "bench without --json runs with a refused library" 0 \
	"$(bench "LD_LIBRARY_PATH=$T/driver:$T/does-not-start:$T/older" -- --gpu-decode auto)"
check "the text report names the library that decodes" grep -q '^nvJPEG: .*/older/libnvjpeg.so.12' "$T/out"
check "the text report names the library that cannot be used" grep -q \
	'^nvJPEG that cannot be used here: .*/does-not-start/libnvjpeg.so.13: .*status 1' "$T/out"
check_not "bench fails if the library in PENSTOCK_NVJPEG does not start" test 0 = \
	"$(bench "PENSTOCK_NVJPEG=$T/does-not-start/libnvjpeg.so.13" "LD_LIBRARY_PATH=$T/driver:$T/older" -- --gpu-decode 1)"
check "the error names the library that does not start" grep -q \
	'PENSTOCK_NVJPEG: .*does-not-start/libnvjpeg.so.13: it does not start' "$T/err"
check_not "no other library is tried if the first is out of memory" test 0 = \
	"$(bench "LD_LIBRARY_PATH=$T/driver:$T/no-memory:$T/older" -- --gpu-decode auto)"
check "the error says that the library is out of memory" grep -q \
	'no-memory/libnvjpeg.so.13: it does not start .*out of memory' "$T/err"
bench "LD_LIBRARY_PATH=$T/driver:$T/does-not-start" HOME=/nonexistent -- --gpu-decode auto >/dev/null
if grep -q 'decodes nothing' "$T/out"; then
	check "if no library starts, the report names the refused one" grep -q \
		'decodes nothing: nvJPEG: no library on this machine can be used: .*does-not-start' "$T/out"
	check_not "if no library starts, bench with a share fails" test 0 = \
		"$(bench "LD_LIBRARY_PATH=$T/driver:$T/does-not-start" HOME=/nonexistent -- --gpu-decode 1)"
	check "the error says why no library starts and what to install" grep -q \
		'status 1). Install one' "$T/err"
else
	skip "if no library starts, the report names the refused one" "this machine has an nvJPEG of its own"
fi

# The Python package loads the nvJPEG of Python's packages, unless the process has loaded another one.
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
	skip "Python loads nvJPEG from its packages" "a sanitizer's runtime is not in the interpreter"
else
	check "Python loads nvJPEG from its packages" py_load
	check_not "Python loads no second nvJPEG" py_load libnvjpeg.so.13
	check "an nvJPEG that is already loaded is no error" test ! -s "$T/err"
fi
