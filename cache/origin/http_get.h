/* GET of a range and HEAD, as kinds of struct ps_http_request. Threads, errors: those of origin.h. */
#ifndef PS_ORIGIN_HTTP_GET_H
#define PS_ORIGIN_HTTP_GET_H

#include "origin/http_request.h"

void ps_http_get(struct ps_http_client *c, struct ps_get *get);
void ps_http_head(struct ps_http_client *c, struct ps_head *head);

#endif
