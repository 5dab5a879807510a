/* A tool that NVTX loads (NVTX_INJECTION64_PATH). It writes a line "THREAD DEPTH NAME" for each range of
 * our domain to the file named by NVTX_TOOL_OUT, and "unbalanced" for an end without a beginning. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static FILE *out;
static _Thread_local int depth;
static char ours;

static nvtxDomainHandle_t domain_create(const char *name)
{
	return strcmp(name, "penstock") == 0 ? (nvtxDomainHandle_t)(void *)&ours : NULL;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event)
{
	if (domain != (nvtxDomainHandle_t)(void *)&ours)
		return -1;
	fprintf(out, "%ld %d %s\n", syscall(SYS_gettid), depth, event->message.ascii);
	return depth++;
}

static int pop(nvtxDomainHandle_t domain)
{
	(void)domain;
	if (depth == 0)
		fprintf(out, "unbalanced\n");
	return --depth;
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
	const NvtxExportTableCallbacks *table = get(NVTX_ETID_CALLBACKS);
	const char *path = getenv("NVTX_TOOL_OUT");
	NvtxFunctionTable functions;
	unsigned n;

	if (!table || !path || !table->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &n) ||
	        n <= NVTX_CBID_CORE2_DomainRangePop)
		return 0;
	out = fopen(path, "we");
	if (!out)
		return 0;
	setvbuf(out, NULL, _IOLBF, 0);
	*functions[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
	*functions[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
	*functions[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
	return 1;
}
