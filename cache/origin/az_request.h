/* What makes an HTTP request one to Azure's Blob service: a dialect of http/request.h. Each attempt is signed with the
 * account key, or has the SAS behind its URL, which no log and no name of an object has. */
#ifndef PS_ORIGIN_AZ_REQUEST_H
#define PS_ORIGIN_AZ_REQUEST_H

#include "origin/az_store.h"
#include "http/request.h"

/* arg of the client is the struct ps_az_store. A container's listing is asked for as the page
 * "az://ACCOUNT/CONTAINER?QUERY". */
extern const struct ps_http_dialect ps_az_dialect;

#endif
