/* GET of a range and HEAD, as kinds of struct ps_http_request. Threads, errors: those of origin.h. */
#ifndef PS_ORIGIN_HTTP_GET_H
#define PS_ORIGIN_HTTP_GET_H

#include "http/request.h"
#include "origin/origin.h"

void ps_http_get(struct ps_http_client *c, struct ps_get *get);
/* What other kinds that fetch a ps_get (the rq's work is embedded in one) do likewise: they are such functions. */
int ps_http_get_body(struct ps_http_request *rq, const char *bytes, size_t n);
void ps_http_get_tell(struct ps_http_request *rq);
void ps_http_get_finish(struct ps_http_request *rq);
/* accept() of a response to [range_first, range_last]; if it gives only the beginning, range_last becomes its end. */
int ps_http_get_check_range(struct ps_http_request *rq, const struct ps_remote *expect);
/* again(): true if the server has given the beginning of the range, and the rest is to be requested. A body that ended
 * too soon without Content-Length is no error to curl; it becomes one. */
bool ps_http_get_again(struct ps_http_request *rq);

void ps_http_head(struct ps_http_client *c, struct ps_head *head);

#endif
