/* Messages over the control socket: lists of names and values, and at most one descriptor with each.
 *
 *   8 bytes "penstock" | protocol, 4 bytes | n, 4 bytes | n bytes: NAME\0 VALUE\0 NAME\0 VALUE\0 ...
 *
 * The numbers are the machine's own: both ends are on it. The first 16 bytes never change; what the rest means, the
 * protocol's number tells. Any byte but NUL may stand in a value: paths and headers are no text in any code.
 *
 * Ownership: a message and its strings belong to the caller (ps_given_fini()); it may hold secrets. Threads: any.
 * Blocks: receive for at most timeout_ms (-1: no limit), send for at most PS_WIRE_SEND_MS.
 * Errors: -EPIPE the other end is gone; -ETIMEDOUT; -EPROTO not of this form, or too long; -EPROTONOSUPPORT
 * another protocol, which *ret_protocol tells. */
#ifndef PS_DAEMON_CONTROL_PROTOCOL_H
#define PS_DAEMON_CONTROL_PROTOCOL_H

#include <stdint.h>

#include "options/command_line.h"

#define PS_WIRE_PROTOCOL 2
#define PS_WIRE_MAX_NBYTES (8u << 20)
#define PS_WIRE_MAX_PAIRS 65536
#define PS_WIRE_SEND_MS 10000

/* fd -1: none. */
int ps_wire_send(int sock, const struct ps_given *message, int fd) PS_MUST_USE;
/* *ret_fd: the descriptor that came with it, or -1; NULL: none is taken. */
int ps_wire_receive(int sock, int timeout_ms, struct ps_given *ret, int *ret_fd, uint32_t *ret_protocol) PS_MUST_USE;

/* The body of a message; -EPROTO, -ENOMEM. */
int ps_wire_decode(const char *bytes, size_t nbytes, struct ps_given *ret) PS_MUST_USE;

/* The first value of this name; NULL: there is none. */
const char *ps_wire_get(const struct ps_given *message, const char *name);

#endif
