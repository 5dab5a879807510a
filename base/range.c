#include "config.h"

#include "base/range.h"

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain; /* NULL: no profiler is attached */

static void domain_make(void)
{
	domain = nvtxDomainCreateA("penstock");
}

void ps_range_begin(const char *name)
{
	nvtxEventAttributes_t event = {.version = NVTX_VERSION,
	        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
	        .messageType = NVTX_MESSAGE_TYPE_ASCII,
	        .message.ascii = name};

	pthread_once(&once, domain_make);
	if (domain)
		nvtxDomainRangePushEx(domain, &event);
}

void ps_range_end(void)
{
	if (domain)
		nvtxDomainRangePop(domain);
}
#endif
