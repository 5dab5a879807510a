#include "config.h"

#include "mock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ptx_module *module; /* freed at the end of the process */

bool mock_ptx_wanted(void)
{
	const char *path = getenv("MOCK_CUDA_PTX");

	return path && path[0];
}

static void coverage_tell(void)
{
	const char *path = getenv("MOCK_CUDA_PTX_COVERAGE");
	FILE *f = path && path[0] ? fopen(path, "ae") : NULL;

	if (f) {
		ptx_module_coverage(module, f);
		fclose(f);
	}
	ptx_module_free(module);
}

static struct ptx_module *module_read(const char *path)
{
	FILE *f = fopen(path, "re");
	struct ptx_module *m = NULL;
	char error[PTX_TEXT] = "", *text = NULL;
	size_t n = 0;

	if (!f || getdelim(&text, &n, '\0', f) < 0)
		snprintf(error, sizeof(error), "%s", strerror(errno));
	else if (ptx_module_parse(text, strlen(text), &m, error) < 0)
		m = NULL;
	if (!m)
		fprintf(stderr, "mock_cuda: %s: %s\n", path, error);
	free(text);
	if (f)
		fclose(f);
	return m;
}

struct ptx_kernel *mock_ptx_kernel(const char *name, size_t args_nbytes)
{
	struct ptx_kernel *k = NULL;
	struct ptx_facts facts;

	pthread_mutex_lock(&lock);
	if (!module) {
		module = module_read(getenv("MOCK_CUDA_PTX"));
		if (module)
			atexit(coverage_tell);
	}
	if (module)
		k = ptx_module_find(module, name);
	pthread_mutex_unlock(&lock);
	if (!k) {
		fprintf(stderr, "mock_cuda: no kernel %s\n", name);
		return NULL;
	}
	facts = ptx_kernel_facts(k);
	if (facts.params_nbytes == args_nbytes && facts.nfused + facts.napproximate + facts.nfree == 0)
		return k;
	fprintf(stderr,
	        "mock_cuda: %s: %u bytes of arguments, not %zu, or floats that need not be the CPU's: "
	        "%u instructions fused, %u approximate, %u without a rounding\n",
	        name, facts.params_nbytes, args_nbytes, facts.nfused, facts.napproximate, facts.nfree);
	return NULL;
}

bool mock_ptx_launch(struct ptx_kernel *kernel, const struct ptx_launch *launch)
{
	char error[PTX_TEXT];
	int rc = ptx_launch(kernel, launch, error);

	if (rc < 0)
		fprintf(stderr, "mock_cuda: %s\n", error);
	return rc == 0;
}
