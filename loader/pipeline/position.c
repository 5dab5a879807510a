#include "config.h"

#include "pipeline/position.h"

#include <errno.h>
#include <string.h>

int ps_position_init(struct ps_position *p, uint32_t nlanes)
{
	*p = (struct ps_position){.nlanes = nlanes, .lanes = calloc(nlanes, sizeof(*p->lanes))};
	return p->lanes ? 0 : -ENOMEM;
}

void ps_position_fini(struct ps_position *p)
{
	free(p->lanes);
	*p = (struct ps_position){0};
}

void ps_position_begin(struct ps_position *p, uint64_t epoch)
{
	p->epoch = epoch;
	p->batches = 0;
	p->turn = 0;
	memset(p->lanes, 0, p->nlanes * sizeof(*p->lanes));
}
