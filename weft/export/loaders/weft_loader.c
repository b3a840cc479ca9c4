/* See weft_loader.h. Parts: errors, SHA-256, JSON, the archive, the CPU, manifests, sizes, code, calls,
   threads. */
#if !defined(_GNU_SOURCE) && !defined(_WIN32)
#define _GNU_SOURCE 1
#endif
#include "weft_loader.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <windows.h>
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <semaphore.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(__x86_64__) && !defined(_MSC_VER)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(_M_X64)
#include <immintrin.h>
#include <intrin.h>
#endif

#define HEAD "artifact.json"
#define CONSTANTS "constants.bin"
#define HEAD_VERSION 4
#define MANIFEST_VERSION 3
#define ALIGNMENT 64
#define MAX_NAME 512
#define MAX_DEPTH 64
#define MAX_BYTES ((int64_t)1 << 48)

typedef unsigned char byte;

/* ---- errors ---- */

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static weft_code fail(weft_error *error, weft_code code, const char *format, ...) {
  if (error) {
    va_list arguments;
    error->code = code;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
  }
  return code;
}

static weft_code fine(weft_error *error) {
  if (error) {
    error->code = WEFT_OK;
    error->message[0] = 0;
  }
  return WEFT_OK;
}

/* ---- SHA-256 (FIPS 180-4) ---- */

typedef struct sha256 {
  uint32_t state[8];
  uint64_t length;
  byte block[64];
} sha256;

static const uint32_t SHA_CONSTANTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int bits) { return (x >> bits) | (x << (32 - bits)); }

/* A round; the variables a to h are those from s[at] on, so that none has to be moved. */
static void sha_round(uint32_t *s, int at, uint32_t added) {
  uint32_t a = s[at], b = s[(at + 1) & 7], c = s[(at + 2) & 7], e = s[(at + 4) & 7];
  uint32_t one = s[(at + 7) & 7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                 ((e & s[(at + 5) & 7]) ^ (~e & s[(at + 6) & 7])) + added;
  uint32_t two = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
  s[(at + 3) & 7] += one;
  s[(at + 7) & 7] = one + two;
}

static void sha_portable(uint32_t *state, const byte *data, size_t blocks) {
  for (; blocks; blocks--, data += 64) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
      w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 |
             (uint32_t)data[4 * i + 2] << 8 | (uint32_t)data[4 * i + 3];
    for (int i = 16; i < 64; i++) {
      uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (rotated(a, 7) ^ rotated(a, 18) ^ (a >> 3)) + w[i - 7] +
             (rotated(b, 17) ^ rotated(b, 19) ^ (b >> 10));
    }
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i += 8) {
      sha_round(s, 0, SHA_CONSTANTS[i] + w[i]), sha_round(s, 7, SHA_CONSTANTS[i + 1] + w[i + 1]);
      sha_round(s, 6, SHA_CONSTANTS[i + 2] + w[i + 2]);
      sha_round(s, 5, SHA_CONSTANTS[i + 3] + w[i + 3]);
      sha_round(s, 4, SHA_CONSTANTS[i + 4] + w[i + 4]);
      sha_round(s, 3, SHA_CONSTANTS[i + 5] + w[i + 5]);
      sha_round(s, 2, SHA_CONSTANTS[i + 6] + w[i + 6]);
      sha_round(s, 1, SHA_CONSTANTS[i + 7] + w[i + 7]);
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
  }
}

#if defined(__x86_64__) && !defined(_MSC_VER)
/* The instructions for SHA keep the state as ABEF and CDGH; four rounds at a time. */
__attribute__((target("sha,sse4.1"))) static void sha_instructions(uint32_t *state,
                                                                   const byte *data,
                                                                   size_t blocks) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0xB1);
  __m128i high =
      _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(state + 4)), 0x1B);
  __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xF0);
  for (; blocks; blocks--, data += 64) {
    const __m128i abef0 = abef, cdgh0 = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; i++)
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i)),
                              swap);
    for (int i = 0; i < 16; i++) {
      __m128i now = w[i & 3];
      __m128i sum = _mm_add_epi32(
          now, _mm_loadu_si128((const __m128i *)(const void *)(SHA_CONSTANTS + 4 * i)));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0E));
      if (i < 12) {
        __m128i last = w[(i + 3) & 3];
        __m128i next = _mm_sha256msg1_epu32(now, w[(i + 1) & 3]);
        next = _mm_add_epi32(next, _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
        w[i & 3] = _mm_sha256msg2_epu32(next, last);
      }
    }
    abef = _mm_add_epi32(abef, abef0);
    cdgh = _mm_add_epi32(cdgh, cdgh0);
  }
  low = _mm_shuffle_epi32(abef, 0x1B);
  high = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(low, high, 0xF0));
  _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

static int has_sha(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 29 & 1)) return 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 19 & 1);
}
#endif

static void sha_blocks(uint32_t *state, const byte *data, size_t blocks) {
#if defined(__x86_64__) && !defined(_MSC_VER)
  if (blocks && has_sha()) {
    sha_instructions(state, data, blocks);
    return;
  }
#endif
  sha_portable(state, data, blocks);
}

static void sha_start(sha256 *sha) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(sha->state, first, sizeof first);
  sha->length = 0;
}

static void sha_add(sha256 *sha, const byte *data, size_t size) {
  size_t filled = (size_t)(sha->length % 64);
  sha->length += size;
  if (filled) {
    size_t taken = size < 64 - filled ? size : 64 - filled;
    memcpy(sha->block + filled, data, taken);
    data += taken;
    size -= taken;
    if (filled + taken < 64) return;
    sha_blocks(sha->state, sha->block, 1);
  }
  sha_blocks(sha->state, data, size / 64);
  if (size % 64) memcpy(sha->block, data + size / 64 * 64, size % 64);
}

/* The digest in hexadecimal, with a zero at its end. */
static void sha_end(sha256 *sha, char *text) {
  uint64_t bits = sha->length * 8;
  byte padding[72] = {0x80}, tail[8];
  size_t filled = (size_t)(sha->length % 64);
  for (int i = 0; i < 8; i++) tail[i] = (byte)(bits >> (56 - 8 * i));
  sha_add(sha, padding, (filled < 56 ? 56 : 120) - filled);
  sha_add(sha, tail, 8);
  for (int i = 0; i < 32; i++)
    snprintf(text + 2 * i, 3, "%02x", (unsigned)(sha->state[i / 4] >> (24 - 8 * (i % 4)) & 255));
}

/* ---- JSON: as Python writes it, in ASCII; values are read where they stand ---- */

typedef struct json {
  const byte *at, *end;
} json;

static void skip_space(json *j) {
  while (j->at < j->end && (*j->at == ' ' || *j->at == '\n')) j->at++;
}

static int take(json *j, char c) {
  skip_space(j);
  if (j->at >= j->end || *j->at != (byte)c) return 0;
  j->at++;
  return 1;
}

static int skip_word(json *j, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(j->end - j->at) < n || memcmp(j->at, word, n)) return 0;
  j->at += n;
  return 1;
}

static int hex_value(byte c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
       : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int hex4(const byte *at, const byte *end, uint32_t *value) {
  *value = 0;
  if (end - at < 4) return 0;
  for (int i = 0; i < 4; i++) {
    int digit = hex_value(at[i]);
    if (digit < 0) return 0;
    *value = *value * 16 + (uint32_t)digit;
  }
  return 1;
}

static size_t put_utf8(char *out, uint32_t c) {
  if (c < 0x80) return out[0] = (char)c, 1;
  if (c < 0x800) return out[0] = (char)(0xC0 | c >> 6), out[1] = (char)(0x80 | (c & 63)), 2;
  if (c < 0x10000)
    return out[0] = (char)(0xE0 | c >> 12), out[1] = (char)(0x80 | (c >> 6 & 63)),
           out[2] = (char)(0x80 | (c & 63)), 3;
  return out[0] = (char)(0xF0 | c >> 18), out[1] = (char)(0x80 | (c >> 12 & 63)),
         out[2] = (char)(0x80 | (c >> 6 & 63)), out[3] = (char)(0x80 | (c & 63)), 4;
}

/* One character of a string, as UTF-8 in out; its length, or 0 for what is no character. */
static size_t character(json *j, char *out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  byte c = *j->at++;
  const char *found;
  uint32_t code, low;
  if (c < 0x20 || c > 0x7E) return 0;
  if (c != '\\') return out[0] = (char)c, 1;
  if (j->at >= j->end) return 0;
  c = *j->at++;
  if (c != 'u') {
    found = c ? strchr(from, c) : NULL;
    if (!found) return 0;
    return out[0] = to[found - from], 1;
  }
  if (!hex4(j->at, j->end, &code)) return 0;
  j->at += 4;
  if (code >= 0xD800 && code < 0xDC00) {
    if (j->end - j->at < 6 || j->at[0] != '\\' || j->at[1] != 'u' ||
        !hex4(j->at + 2, j->end, &low) || low < 0xDC00 || low > 0xDFFF)
      return 0;
    j->at += 6;
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (!code || (code >= 0xDC00 && code <= 0xDFFF)) {
    return 0;
  }
  return put_utf8(out, code);
}

/* A string into out (NULL: only its length); 0 if it is none or too long. */
static int string(json *j, char *out, size_t room, size_t *length) {
  size_t n = 0;
  if (!take(j, '"')) return 0;
  while (j->at < j->end && *j->at != '"') {
    char c[4];
    size_t bytes = character(j, c);
    if (!bytes || (out && n + bytes >= room)) return 0;
    if (out) memcpy(out + n, c, bytes);
    n += bytes;
  }
  if (out) out[n] = 0;
  if (length) *length = n;
  return take(j, '"');
}

static int number(json *j) {
  const byte *start = j->at;
  while (j->at < j->end && *j->at && strchr("0123456789+-.eE", *j->at)) j->at++;
  return j->at > start;
}

/* Any value, without its meaning. */
static int skip_value(json *j, int depth) {
  skip_space(j);
  if (j->at >= j->end || depth > MAX_DEPTH) return 0;
  switch (*j->at) {
    case '"': return string(j, NULL, 0, NULL);
    case '{':
      j->at++;
      if (take(j, '}')) return 1;
      do {
        if (!string(j, NULL, 0, NULL) || !take(j, ':') || !skip_value(j, depth + 1)) return 0;
      } while (take(j, ','));
      return take(j, '}');
    case '[':
      j->at++;
      if (take(j, ']')) return 1;
      do {
        if (!skip_value(j, depth + 1)) return 0;
      } while (take(j, ','));
      return take(j, ']');
    case 't': return skip_word(j, "true");
    case 'f': return skip_word(j, "false");
    case 'n': return skip_word(j, "null");
    case 'N': return skip_word(j, "NaN");
    case 'I': return skip_word(j, "Infinity");
    default: return skip_word(j, "-Infinity") || number(j);
  }
}

/* The value of a key of an object: 1 if it is there, 0 if not, -1 if the object is damaged. */
static int member(json object, const char *key, json *value) {
  int found = 0;
  if (!take(&object, '{')) return -1;
  if (take(&object, '}')) return 0;
  do {
    char name[MAX_NAME];
    json start;
    if (!string(&object, name, sizeof name, NULL) || !take(&object, ':')) return -1;
    skip_space(&object);
    start = object;
    if (!skip_value(&object, 0)) return -1;
    if (!strcmp(name, key)) {
      if (found++) return -1; /* which one counts? */
      value->at = start.at;
      value->end = object.at;
    }
  } while (take(&object, ','));
  return take(&object, '}') ? found : -1;
}

/* The elements of an array, one after the other: 1 for an element, 0 at the end, -1. */
static int element(json *array, int *index, json *value) {
  if (!take(array, *index ? ',' : '[')) return *index && take(array, ']') ? 0 : -1;
  if (!*index && take(array, ']')) return 0;
  ++*index;
  skip_space(array);
  value->at = array->at;
  if (!skip_value(array, 0)) return -1;
  value->end = array->at;
  return 1;
}

static int is_null(json value) { return value.at < value.end && *value.at == 'n'; }

static int integer(json value, int64_t *result) {
  uint64_t n = 0;
  int negative = value.at < value.end && *value.at == '-';
  const byte *at = value.at + negative;
  if (at >= value.end) return 0;
  for (; at < value.end; at++) {
    unsigned digit = (unsigned)(*at - '0');
    if (*at < '0' || digit > 9 || n > ((uint64_t)INT64_MAX - digit) / 10) return 0;
    n = n * 10 + digit;
  }
  *result = negative ? -(int64_t)n : (int64_t)n;
  return 1;
}

static int member_integer(json object, const char *key, int64_t *result) {
  json value;
  return member(object, key, &value) == 1 && integer(value, result);
}

static int member_text(json object, const char *key, char *text, size_t room) {
  json value;
  return member(object, key, &value) == 1 && string(&value, text, room, NULL);
}

/* Whether a member has something in it: it is not left out, null, or []. */
static int is_given(json object, const char *key) {
  json value;
  int found = member(object, key, &value);
  return found < 0 || (found && !is_null(value) &&
                       !(value.at[0] == '[' && value.end - value.at == 2));
}

/* ---- the archive: an uncompressed zip file ---- */

static uint32_t u16(const byte *at) { return (uint32_t)(at[0] | at[1] << 8); }
static uint32_t u32(const byte *at) { return u16(at) | u16(at + 2) << 16; }
static uint64_t u64(const byte *at) { return u32(at) | (uint64_t)u32(at + 4) << 32; }

/* The place of the central directory, from the record at the end of the file. */
static weft_code find_directory(weft_file *file, weft_error *error) {
  const byte *data = file->data;
  size_t size = file->size, at, least;
  uint64_t length, start;
  if (size < 4 || u32(data) != 0x04034b50)
    return fail(error, size < 4 ? WEFT_TRUNCATED : WEFT_NOT_AN_ARTIFACT,
                "not a weft artifact: the file does not start as one");
  if (size < 22) return fail(error, WEFT_TRUNCATED, "the file ends after %lu bytes",
                             (unsigned long)size);
  least = size > 22 + 65535 ? size - 22 - 65535 : 0;
  for (at = size - 22; u32(data + at) != 0x06054b50 || u16(data + at + 20) != size - at - 22; at--)
    if (at == least)
      return fail(error, WEFT_TRUNCATED, "the file has no end: it was not written whole");
  length = u32(data + at + 12);
  start = u32(data + at + 16);
  if (start == 0xFFFFFFFF && at >= 20 && u32(data + at - 20) == 0x07064b50) {
    uint64_t record = u64(data + at - 12);
    if (record > at || at - record < 56 || u32(data + record) != 0x06064b50)
      return fail(error, WEFT_DAMAGED, "a damaged archive: its directory");
    length = u64(data + record + 40);
    start = u64(data + record + 48);
  }
  if (start > at || length > at - start)
    return fail(error, WEFT_DAMAGED, "a damaged archive: its directory is outside of the file");
  file->directory = (size_t)start;
  file->directory_end = (size_t)(start + length);
  return WEFT_OK;
}

/* One record of the directory: its name, and where its bytes are. */
typedef struct record {
  const byte *name;
  size_t name_length;
  uint64_t start, size;
} record;

static int read_record(const weft_file *file, size_t *at, record *found) {
  const byte *p = file->data + *at, *extra, *extra_end;
  uint64_t stored, size, header;
  size_t left = file->directory_end - *at, length;
  if (left < 46 || u32(p) != 0x02014b50) return 0;
  length = 46 + (size_t)u16(p + 28) + u16(p + 30) + u16(p + 32);
  if (left < length) return 0;
  found->name = p + 46;
  found->name_length = u16(p + 28);
  stored = u32(p + 20), size = u32(p + 24), header = u32(p + 42);
  extra = p + 46 + u16(p + 28);
  extra_end = extra + u16(p + 30);
  while (extra_end - extra >= 4) {
    const byte *field = extra + 4, *end = field + u16(extra + 2);
    uint64_t *wide[3];
    int count = 0;
    if (end > extra_end) return 0;
    if (u16(extra) == 1) { /* sizes of 64 bits, for those that are all ones */
      if (size == 0xFFFFFFFF) wide[count++] = &size;
      if (stored == 0xFFFFFFFF) wide[count++] = &stored;
      if (header == 0xFFFFFFFF) wide[count++] = &header;
      for (int i = 0; i < count; i++, field += 8) {
        if (end - field < 8) return 0;
        *wide[i] = u64(field);
      }
    }
    extra = end;
  }
  if (u16(p + 10) || (u16(p + 8) & 1) || stored != size) return 0; /* compressed, encrypted */
  if (header > file->size || file->size - header < 30) return 0;
  if (u32(file->data + header) != 0x04034b50) return 0;
  found->start = header + 30 + u16(file->data + header + 26) + u16(file->data + header + 28);
  found->size = size;
  if (found->start > file->directory || size > file->directory - found->start) return 0;
  *at += length;
  return 1;
}

/* The bytes of a member. */
static weft_code find_member(const weft_file *file, const char *name, const byte **data,
                             size_t *size, weft_error *error) {
  size_t at = file->directory, length = strlen(name);
  int found = 0;
  while (at < file->directory_end) {
    record one;
    if (!read_record(file, &at, &one))
      return fail(error, WEFT_DAMAGED, "a damaged archive: its directory");
    if (one.name_length == length && !memcmp(one.name, name, length)) {
      if (found++) return fail(error, WEFT_DAMAGED, "two members are called %s", name);
      *data = file->data + one.start;
      *size = (size_t)one.size;
    }
  }
  if (!found) return fail(error, WEFT_DAMAGED, "the member %s is missing", name);
  return WEFT_OK;
}

static json head_of(const weft_file *file) {
  json head;
  head.at = file->data + file->head;
  head.end = file->data + file->head_end;
  return head;
}

/* The bytes of a member whose checksum is that of the head. */
static weft_code read_member(const weft_file *file, const char *name, const byte **data,
                             size_t *size, weft_error *error) {
  char wanted[80], got[65];
  json checksums;
  sha256 sha;
  weft_code code = find_member(file, name, data, size, error);
  if (code) return code;
  if (member(head_of(file), "checksums", &checksums) != 1 ||
      !member_text(checksums, name, wanted, sizeof wanted))
    return fail(error, WEFT_DAMAGED, "the head has no checksum of %s", name);
  sha_start(&sha);
  sha_add(&sha, *data, *size);
  sha_end(&sha, got);
  if (strcmp(wanted, got)) return fail(error, WEFT_DAMAGED, "%s has another checksum", name);
  return WEFT_OK;
}

/* The checksum of the head is that of its text on one line, without itself: the members in the
   order that they have, which is that of their names. */
static int hash_head(json *j, sha256 *sha, int depth, const char *skipped) {
  skip_space(j);
  if (j->at >= j->end || depth > MAX_DEPTH) return 0;
  if (*j->at == '{' || *j->at == '[') {
    char close = *j->at == '{' ? '}' : ']';
    int count = 0;
    sha_add(sha, j->at, 1);
    j->at++;
    if (!take(j, close)) {
      do {
        const byte *start;
        char key[MAX_NAME] = "";
        skip_space(j);
        start = j->at;
        if (close == '}') {
          if (!string(j, key, sizeof key, NULL)) return 0;
          if (depth == 1 && skipped && !strcmp(key, skipped)) {
            if (!take(j, ':') || !skip_value(j, depth)) return 0;
            continue;
          }
        }
        if (count++) sha_add(sha, (const byte *)", ", 2);
        if (close == '}') {
          sha_add(sha, start, (size_t)(j->at - start));
          if (!take(j, ':')) return 0;
          sha_add(sha, (const byte *)": ", 2);
        }
        if (!hash_head(j, sha, depth + 1, !depth && strcmp(key, "checksums") ? NULL : skipped))
          return 0;
      } while (take(j, ','));
      if (!take(j, close)) return 0;
    }
    sha_add(sha, (const byte *)&close, 1);
    return 1;
  }
  {
    const byte *start = j->at;
    if (!skip_value(j, depth)) return 0;
    sha_add(sha, start, (size_t)(j->at - start));
  }
  return 1;
}

static weft_code check_head(weft_file *file, weft_error *error) {
  const byte *data = NULL;
  size_t size = 0;
  char text[MAX_NAME], got[65];
  json head, checksums;
  int64_t version;
  sha256 sha;
  weft_error why = {WEFT_OK, ""};
  if (find_member(file, HEAD, &data, &size, &why)) {
    const byte *old;
    size_t bytes;
    if (strstr(why.message, "missing") && !find_member(file, "manifest.json", &old, &bytes, NULL))
      return fail(error, WEFT_OTHER_FORMAT,
                  "the file has an older format; export it again, or use weft.load");
    return strstr(why.message, "missing")
               ? fail(error, WEFT_NOT_AN_ARTIFACT, "a zip archive without %s", HEAD)
               : fail(error, why.code, "%s", why.message);
  }
  file->head = (size_t)(data - file->data);
  file->head_end = file->head + size;
  head = head_of(file);
  if (!skip_value(&head, 0) || (skip_space(&head), head.at != head.end))
    return fail(error, WEFT_DAMAGED, "%s is no JSON of an artifact", HEAD);
  head = head_of(file);
  if (!member_text(head, "format", text, sizeof text) || strcmp(text, "weft artifact"))
    return fail(error, WEFT_NOT_AN_ARTIFACT, "%s is that of another kind of file", HEAD);
  if (!member_integer(head, "version", &version))
    return fail(error, WEFT_DAMAGED, "%s has no version", HEAD);
  if (version != HEAD_VERSION)
    return fail(error, WEFT_OTHER_FORMAT, "the file has version %ld of the format, not %d; %s",
                (long)version, HEAD_VERSION,
                version > HEAD_VERSION ? "use a newer weft_loader.c" : "export it again");
  sha_start(&sha);
  if (member(head, "checksums", &checksums) != 1 ||
      !member_text(checksums, HEAD, text, sizeof text) || !hash_head(&head, &sha, 0, HEAD))
    return fail(error, WEFT_DAMAGED, "%s has no checksums", HEAD);
  sha_end(&sha, got);
  if (strcmp(text, got)) return fail(error, WEFT_DAMAGED, "%s has another checksum", HEAD);
  return fine(error);
}

weft_code weft_open_memory(weft_file *file, const void *data, size_t bytes, weft_error *error) {
  weft_code code;
  if (!file || (!data && bytes)) return fail(error, WEFT_NULL_POINTER, "weft_open: NULL");
  memset(file, 0, sizeof *file);
  if ((uintptr_t)data % ALIGNMENT)
    return fail(error, WEFT_UNALIGNED, "the file in memory is not at a multiple of %d", ALIGNMENT);
  if (!bytes) return fail(error, WEFT_TRUNCATED, "the file is empty");
  file->data = (const byte *)data;
  file->size = bytes;
  code = find_directory(file, error);
  return code ? code : check_head(file, error);
}

weft_code weft_open(weft_file *file, const char *path, weft_error *error) {
  weft_code code;
  void *data = NULL, *mapping = NULL;
  size_t size = 0;
  if (!file || !path) return fail(error, WEFT_NULL_POINTER, "weft_open: NULL");
  memset(file, 0, sizeof *file);
#if defined(_WIN32)
  {
    LARGE_INTEGER length;
    HANDLE handle = CreateFileA(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    if (handle == INVALID_HANDLE_VALUE || !GetFileSizeEx(handle, &length))
      return fail(error, WEFT_CANNOT_READ, "%.200s cannot be opened", path);
    size = (size_t)length.QuadPart;
    if (size) {
      mapping = CreateFileMappingA(handle, NULL, PAGE_READONLY, 0, 0, NULL);
      data = mapping ? MapViewOfFile((HANDLE)mapping, FILE_MAP_READ, 0, 0, 0) : NULL;
    }
    CloseHandle(handle);
    if (size && !data) return fail(error, WEFT_CANNOT_READ, "%.200s cannot be mapped", path);
  }
#else
  {
    struct stat about;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail(error, WEFT_CANNOT_READ, "%.200s cannot be opened", path);
    if (fstat(descriptor, &about) || !S_ISREG(about.st_mode)) {
      close(descriptor);
      return fail(error, WEFT_CANNOT_READ, "%.200s is not a file", path);
    }
    size = (size_t)about.st_size;
    data = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : NULL;
    close(descriptor);
    if (data == MAP_FAILED) return fail(error, WEFT_CANNOT_READ, "%.200s cannot be mapped", path);
  }
#endif
  code = weft_open_memory(file, data, size, error);
  file->data = (const byte *)data;
  file->size = size;
  file->is_mapped = data != NULL;
  file->mapping = mapping;
  if (code) weft_close(file);
  return code;
}

void weft_close(weft_file *file) {
  if (!file) return;
  if (file->is_mapped) {
#if defined(_WIN32)
    UnmapViewOfFile(file->data);
    CloseHandle((HANDLE)file->mapping);
#else
    munmap((void *)(uintptr_t)file->data, file->size);
#endif
  }
  memset(file, 0, sizeof *file);
}

/* ---- the CPU ---- */

#if defined(__x86_64__) || defined(_M_X64)
#define ARCH "x86_64"
enum { EAX, EBX, ECX, EDX };
enum { NO_STATE = 0, AVX_STATE = 0x6, AVX512_STATE = 0xE6, AMX_STATE = 0x60000 };
typedef struct feature {
  const char *name;
  uint32_t leaf, subleaf;
  int reg, bit;
  uint32_t state; /* the registers that the system must save (XCR0) */
} feature;
/* As weft/runtime/devices/cpu/cpuid.py has them. */
static const feature FEATURES[] = {
    {"sse3", 1, 0, ECX, 0, NO_STATE},
    {"pclmul", 1, 0, ECX, 1, NO_STATE},
    {"ssse3", 1, 0, ECX, 9, NO_STATE},
    {"fma", 1, 0, ECX, 12, AVX_STATE},
    {"cx16", 1, 0, ECX, 13, NO_STATE},
    {"sse4.1", 1, 0, ECX, 19, NO_STATE},
    {"sse4.2", 1, 0, ECX, 20, NO_STATE},
    {"movbe", 1, 0, ECX, 22, NO_STATE},
    {"popcnt", 1, 0, ECX, 23, NO_STATE},
    {"aes", 1, 0, ECX, 25, NO_STATE},
    {"avx", 1, 0, ECX, 28, AVX_STATE},
    {"f16c", 1, 0, ECX, 29, AVX_STATE},
    {"lzcnt", 0x80000001, 0, ECX, 5, NO_STATE},
    {"bmi", 7, 0, EBX, 3, NO_STATE},
    {"avx2", 7, 0, EBX, 5, AVX_STATE},
    {"bmi2", 7, 0, EBX, 8, NO_STATE},
    {"avx512f", 7, 0, EBX, 16, AVX512_STATE},
    {"avx512dq", 7, 0, EBX, 17, AVX512_STATE},
    {"adx", 7, 0, EBX, 19, NO_STATE},
    {"avx512ifma", 7, 0, EBX, 21, AVX512_STATE},
    {"avx512cd", 7, 0, EBX, 28, AVX512_STATE},
    {"avx512bw", 7, 0, EBX, 30, AVX512_STATE},
    {"avx512vl", 7, 0, EBX, 31, AVX512_STATE},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512_STATE},
    {"avx512vbmi2", 7, 0, ECX, 6, AVX512_STATE},
    {"gfni", 7, 0, ECX, 8, NO_STATE},
    {"vaes", 7, 0, ECX, 9, AVX_STATE},
    {"vpclmulqdq", 7, 0, ECX, 10, AVX_STATE},
    {"avx512vnni", 7, 0, ECX, 11, AVX512_STATE},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512_STATE},
    {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512_STATE},
    {"avx512vp2intersect", 7, 0, EDX, 8, AVX512_STATE},
    {"amx-bf16", 7, 0, EDX, 22, AMX_STATE},
    {"avx512fp16", 7, 0, EDX, 23, AVX512_STATE},
    {"amx-tile", 7, 0, EDX, 24, AMX_STATE},
    {"amx-int8", 7, 0, EDX, 25, AMX_STATE},
    {"avxvnni", 7, 1, EAX, 4, AVX_STATE},
    {"avx512bf16", 7, 1, EAX, 5, AVX512_STATE},
};

static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t *r) {
#if defined(_MSC_VER)
  __cpuidex((int *)r, (int)leaf, (int)subleaf);
#else
  __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
#endif
}

static uint32_t saved_states(void) {
  uint32_t r[4], low, high;
  cpuid(1, 0, r);
  if (!(r[ECX] >> 27 & 1)) return 0;
#if defined(_MSC_VER)
  low = (uint32_t)_xgetbv(0), high = 0;
#else
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
#endif
  (void)high;
  return low;
}

int weft_cpu_has(const char *name) {
  for (size_t i = 0; name && i < sizeof FEATURES / sizeof *FEATURES; i++) {
    const feature *one = &FEATURES[i];
    uint32_t r[4];
    if (strcmp(one->name, name)) continue;
    cpuid(one->leaf & 0x80000000u, 0, r);
    if (r[EAX] < one->leaf) return 0;
    cpuid(one->leaf, one->subleaf, r);
    return (r[one->reg] >> one->bit & 1) && (saved_states() & one->state) == one->state;
  }
  return 0;
}
#elif defined(__aarch64__) || defined(_M_ARM64)
#define ARCH "aarch64"
/* The bit of AT_HWCAP, or 64 and more of AT_HWCAP2, of Linux; the name in sysctl of macOS. */
static const struct {
  const char *name;
  int bit;
  const char *sysctl;
} FEATURES[] = {
    {"neon", 1, "hw.optional.AdvSIMD"},
    {"lse", 8, "hw.optional.arm.FEAT_LSE"},
    {"fullfp16", 10, "hw.optional.arm.FEAT_FP16"},
    {"dotprod", 20, "hw.optional.arm.FEAT_DotProd"},
    {"sve", 22, ""},
    {"sve2", 64 + 1, ""},
    {"i8mm", 64 + 13, "hw.optional.arm.FEAT_I8MM"},
    {"bf16", 64 + 14, "hw.optional.arm.FEAT_BF16"},
};

int weft_cpu_has(const char *name) {
  for (size_t i = 0; name && i < sizeof FEATURES / sizeof *FEATURES; i++) {
    if (strcmp(FEATURES[i].name, name)) continue;
#if defined(__linux__)
    {
      unsigned long words[2];
      words[0] = getauxval(AT_HWCAP), words[1] = getauxval(AT_HWCAP2);
      return (int)(words[FEATURES[i].bit / 64] >> (FEATURES[i].bit % 64) & 1);
    }
#elif defined(__APPLE__)
    {
      int value = 0;
      size_t size = sizeof value;
      return FEATURES[i].sysctl[0] &&
             !sysctlbyname(FEATURES[i].sysctl, &value, &size, NULL, 0) && value;
    }
#endif
  }
  return 0;
}
#elif defined(__riscv) && __riscv_xlen == 64
#define ARCH "riscv64"
int weft_cpu_has(const char *name) { /* extensions of one letter */
  if (!name || name[0] < 'a' || name[0] > 'z' || name[1]) return 0;
#if defined(__linux__)
  return (int)(getauxval(AT_HWCAP) >> (name[0] - 'a') & 1);
#else
  return 0;
#endif
}
#else
#if defined(__arm__)
#define ARCH "arm"
#else
#define ARCH "unknown"
#endif
int weft_cpu_has(const char *name) {
#if defined(__arm__) && defined(__linux__)
  unsigned long found = getauxval(AT_HWCAP);
  if (name && !strcmp(name, "neon")) return (int)(found >> 12 & 1);
  if (name && !strcmp(name, "vfp3")) return (int)(found >> 13 & 1);
  if (name && !strcmp(name, "vfp4")) return (int)(found >> 16 & 1);
#endif
  (void)name;
  return 0;
}
#endif

/* Whether code for a triple can run in this process, apart from instructions. */
static int fits_triple(const char *triple) {
  size_t length = strlen(ARCH);
#if defined(__linux__)
  const char *system = "linux";
#elif defined(__APPLE__)
  const char *system = "darwin", *other = "macos";
  if (strstr(triple, other)) system = other;
#elif defined(_WIN32)
  const char *system = "windows";
#else
  const char *system = "";
#endif
  return !strncmp(triple, ARCH, length) && (triple[length] == '-' || !strcmp(ARCH, "arm")) &&
         strstr(triple, system) != NULL;
}

/* ---- manifests, into memory of the caller ---- */

/* Memory that is given out front to back; without a base it is only counted. */
typedef struct block {
  byte *base;
  size_t size, used;
  int is_full;
} block;

static void *give(block *memory, size_t count, size_t each) {
  size_t bytes = (count * each + 7) & ~(size_t)7;
  void *here = memory->base ? memory->base + memory->used : NULL;
  if (memory->base && bytes > memory->size - memory->used) {
    memory->is_full = 1;
    return NULL;
  }
  memory->used += bytes;
  return here;
}

static int count_of(json array, int *count) {
  json value;
  int more;
  *count = 0;
  while ((more = element(&array, count, &value)) == 1)
    if (*count == INT_MAX) return 0;
  return more == 0;
}

static int keep_text(json value, block *memory, const char **text) {
  size_t length;
  json copy = value;
  char *made;
  if (!string(&copy, NULL, 0, &length)) return 0;
  made = (char *)give(memory, length + 1, 1);
  *text = made;
  return made ? string(&value, made, length + 1, NULL) : 1;
}

static int keep_size(json value, block *memory, weft_size *size) {
  size->value = 0;
  size->text = NULL;
  if (value.at < value.end && *value.at == '"') return keep_text(value, memory, &size->text);
  return integer(value, &size->value);
}

/* The sizes in member `key` of an object; none if it is missing. */
static int keep_sizes(json object, const char *key, block *memory, int *count,
                      const weft_size **sizes) {
  json array, value;
  weft_size *made;
  int index = 0, found = member(object, key, &array);
  *count = 0;
  *sizes = NULL;
  if (found != 1) return found == 0;
  if (!count_of(array, count)) return 0;
  made = (weft_size *)give(memory, (size_t)*count, sizeof *made);
  *sizes = made;
  while (element(&array, &index, &value) == 1) {
    weft_size one;
    if (!keep_size(value, memory, &one)) return 0;
    if (made) made[index - 1] = one;
  }
  return 1;
}

static size_t bytes_of_dtype(const char *dtype) {
  static const struct {
    const char *name;
    size_t bytes;
  } KNOWN[] = {{"float32", 4}, {"float64", 8}, {"float16", 2}, {"bfloat16", 2}, {"bool", 1},
               {"int8", 1},    {"int16", 2},   {"int32", 4},   {"int64", 8},    {"uint8", 1},
               {"uint16", 2},  {"uint32", 4},  {"uint64", 8},  {"complex64", 8},
               {"complex128", 16}};
  for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
    if (!strcmp(dtype, KNOWN[i].name)) return KNOWN[i].bytes;
  return strncmp(dtype, "float8_", 7) ? 0 : 1;
}

static int keep_tensors(json manifest, const char *key, block *memory, int *count,
                        const weft_tensor **tensors) {
  json array, value, part;
  weft_tensor *made;
  int index = 0, found = member(manifest, key, &array);
  *count = 0;
  *tensors = NULL;
  if (found != 1) return found == 0 && !strcmp(key, "states");
  if (!count_of(array, count)) return 0;
  made = (weft_tensor *)give(memory, (size_t)*count, sizeof *made);
  *tensors = made;
  while (element(&array, &index, &value) == 1) {
    weft_tensor one;
    char dtype[64];
    if (member(value, "name", &part) != 1 || !keep_text(part, memory, &one.name)) return 0;
    if (!member_text(value, "dtype", dtype, sizeof dtype) ||
        !(one.element_bytes = bytes_of_dtype(dtype)))
      return 0;
    if (member(value, "dtype", &part) != 1 || !keep_text(part, memory, &one.dtype)) return 0;
    if (!keep_sizes(value, "shape", memory, &one.rank, &one.shape)) return 0;
    if (made) made[index - 1] = one;
  }
  return 1;
}

static int keep_symbols(json manifest, block *memory, int *count, const weft_symbol **symbols) {
  json array, value, part;
  weft_symbol *made;
  int index = 0, found = member(manifest, "symbols", &array);
  *count = 0;
  *symbols = NULL;
  if (found != 1) return found == 0;
  if (!count_of(array, count)) return 0;
  made = (weft_symbol *)give(memory, (size_t)*count, sizeof *made);
  *symbols = made;
  while (element(&array, &index, &value) == 1) {
    weft_symbol one;
    one.high = -1;
    if (member(value, "name", &part) != 1 || !keep_text(part, memory, &one.name) ||
        !member_integer(value, "low", &one.low) || one.low < 0 ||
        !member_integer(value, "multiple", &one.multiple) || one.multiple < 1 ||
        member(value, "high", &part) != 1 ||
        (!is_null(part) && (!integer(part, &one.high) || one.high < one.low)))
      return 0;
    if (made) made[index - 1] = one;
  }
  return 1;
}

/* What a manifest says, apart from code and constants. */
static weft_code keep_manifest(json manifest, weft_program *program, block *memory,
                               weft_error *error) {
  static const char *const ABSENT[] = {"vm", "counts", "devices", "arenas"};
  static const char *const MEANING[] = {"the virtual machine", "sizes that data determines",
                                        "simulated devices", "the memory of another device"};
  char text[MAX_NAME];
  json part, value;
  int64_t number_, bytes;
  for (int i = 0; i < 4; i++)
    if (is_given(manifest, ABSENT[i]))
      return fail(error, WEFT_UNSUPPORTED, "the program needs %s; use weft.load", MEANING[i]);
  if (member(manifest, "launched_by", &part) == 1 &&
      (!string(&part, text, sizeof text, NULL) || strcmp(text, "weft_main")))
    return fail(error, WEFT_UNSUPPORTED, "the program is launched by another part of weft");
  if (!member_integer(manifest, "constants_bytes", &bytes) || bytes < 0 || bytes > MAX_BYTES ||
      !keep_tensors(manifest, "inputs", memory, &program->num_inputs, &program->inputs) ||
      !keep_tensors(manifest, "outputs", memory, &program->num_outputs, &program->outputs) ||
      !keep_tensors(manifest, "states", memory, &program->num_states, &program->states) ||
      !keep_symbols(manifest, memory, &program->num_symbols, &program->symbols) ||
      !keep_sizes(manifest, "sizes", memory, &program->num_sizes, &program->sizes) ||
      !keep_sizes(manifest, "nonnegative", memory, &program->num_nonnegative,
                  &program->nonnegative) ||
      !keep_sizes(manifest, "initial", memory, &program->num_initial, &program->initial) ||
      member(manifest, "arena_bytes", &value) != 1 ||
      !keep_size(value, memory, &program->arena) ||
      member(manifest, "target", &part) != 1 || member(part, "cpu", &value) != 1 ||
      !keep_text(value, memory, &program->cpu) ||
      (program->num_initial && program->num_initial != program->num_states))
    return memory->is_full ? fail(error, WEFT_NO_MEMORY, "weft_load needs more than %lu bytes",
                                  (unsigned long)memory->size)
                           : fail(error, WEFT_DAMAGED, "a damaged manifest");
  if (memory->is_full)
    return fail(error, WEFT_NO_MEMORY, "weft_load needs more than %lu bytes",
                (unsigned long)memory->size);
  if (!member_integer(manifest, "format_version", &number_)) number_ = -1;
  if (number_ != MANIFEST_VERSION)
    return fail(error, WEFT_OTHER_FORMAT, "the native code has version %ld of its format, not %d",
                (long)number_, MANIFEST_VERSION);
  program->constants_bytes = (size_t)bytes;
  return WEFT_OK;
}

/* The first feature that this CPU lacks, with how many the code needs; 0 for a damaged manifest. */
static int lacks(json manifest, char *missing, size_t room, int *count, weft_code *code) {
  char text[MAX_NAME];
  json target, features, one, value;
  int more;
  *count = 0;
  *code = WEFT_OK;
  missing[0] = 0;
  if (member(manifest, "target", &target) != 1 || member(target, "features", &features) != 1)
    return 0;
  if (member(target, "kind", &value) == 1 &&
      (!string(&value, text, sizeof text, NULL) || strcmp(text, "cpu"))) {
    *code = WEFT_UNSUPPORTED;
    snprintf(missing, room, "code for a target of another kind");
    return 1;
  }
  if (!member_text(target, "triple", text, sizeof text)) return 0;
  if (!fits_triple(text)) {
    *code = WEFT_OTHER_MACHINE;
    snprintf(missing, room, "code for %.100s", text);
    return 1;
  }
  while ((more = element(&features, count, &one)) == 1) {
    if (!string(&one, text, sizeof text, NULL)) return 0;
    if (*code == WEFT_OK && !weft_cpu_has(text)) {
      *code = WEFT_MISSING_FEATURE;
      snprintf(missing, room, "code that needs %.100s", text);
    }
  }
  return more == 0;
}

/* The native program of an entry point that uses most of what this CPU has. */
static weft_code find_program(const weft_file *file, const char *entry, char *folder,
                              json *manifest, weft_error *error) {
  json entries, point, programs, name;
  weft_code reason = WEFT_UNSUPPORTED;
  char why[200] = "no native code";
  int index = 0, most = -1, least = INT_MAX, more;
  if (!file || !file->data) return fail(error, WEFT_NULL_POINTER, "no file is open");
  if (!entry) entry = "main";
  if (member(head_of(file), "entries", &entries) != 1)
    return fail(error, WEFT_DAMAGED, "%s has no entry points", HEAD);
  more = member(entries, entry, &point);
  if (more == 0)
    return fail(error, WEFT_NO_SUCH_ENTRY, "the file has no entry point %.100s", entry);
  if (more < 0 || member(point, "programs", &programs) != 1 ||
      !member_text(point, "signature", why, sizeof why))
    return fail(error, WEFT_DAMAGED, "%s: entry point %.100s", HEAD, entry);
  if (why[0])
    return fail(error, WEFT_UNSUPPORTED,
                "the model has a program for each set of input shapes; use weft.load");
  snprintf(why, sizeof why, "no native code");
  while ((more = element(&programs, &index, &name)) == 1) {
    char label[MAX_NAME], path[MAX_NAME + 16], missing[160];
    const byte *data = NULL;
    size_t size = 0;
    json text;
    weft_code code;
    int count;
    if (!string(&name, label, sizeof label, NULL)) return fail(error, WEFT_DAMAGED, HEAD);
    snprintf(path, sizeof path, "%s/manifest.json", label);
    if ((code = read_member(file, path, &data, &size, error))) return code;
    text.at = data, text.end = data + size;
    if (!skip_value(&text, 0) || (skip_space(&text), text.at != text.end))
      return fail(error, WEFT_DAMAGED, "a damaged manifest: no JSON");
    text.at = data;
    if (!lacks(text, missing, sizeof missing, &count, &code))
      return fail(error, WEFT_DAMAGED, "a damaged manifest: its target");
    if (code == WEFT_OK && count > most) {
      most = count;
      snprintf(folder, MAX_NAME, "%s", label);
      *manifest = text;
    } else if (code && (count < least)) {
      least = count;
      reason = code;
      snprintf(why, sizeof why, "%s", missing);
    }
  }
  if (more < 0) return fail(error, WEFT_DAMAGED, "%s: programs of %.100s", HEAD, entry);
  if (most < 0)
    return fail(error, reason, "the file has %s, which this machine (%s) has not", why, ARCH);
  return WEFT_OK;
}

weft_code weft_entry_name(const weft_file *file, int index, char *name, size_t bytes,
                          weft_error *error) {
  json entries, key;
  if (!file || !file->data || !name || !bytes)
    return fail(error, WEFT_NULL_POINTER, "weft_entry_name: NULL");
  if (member(head_of(file), "entries", &entries) != 1 || !take(&entries, '{'))
    return fail(error, WEFT_DAMAGED, "%s has no entry points", HEAD);
  do {
    skip_space(&entries);
    key = entries;
    if (!string(&entries, NULL, 0, NULL) || !take(&entries, ':') || !skip_value(&entries, 0))
      return fail(error, WEFT_DAMAGED, "%s: entry points", HEAD);
    if (!index--)
      return string(&key, name, bytes, NULL)
                 ? fine(error)
                 : fail(error, WEFT_NO_MEMORY, "the name needs more than %lu bytes",
                        (unsigned long)bytes);
  } while (take(&entries, ','));
  return fail(error, WEFT_NO_SUCH_ENTRY, "the file has fewer entry points");
}

/* ---- code ---- */

static void unload(void *library) {
  if (!library) return;
#if defined(_WIN32)
  FreeLibrary((HMODULE)library);
#else
  dlclose(library);
#endif
}

static void *symbol(void *library, const char *name) {
#if defined(_WIN32)
  return (void *)(uintptr_t)GetProcAddress((HMODULE)library, name);
#else
  return dlsym(library, name);
#endif
}

#if !defined(_WIN32)
static int write_all(int descriptor, const byte *data, size_t size) {
  while (size) {
    ssize_t written = write(descriptor, data, size);
    if (written <= 0) return 0;
    data += written;
    size -= (size_t)written;
  }
  return 1;
}
#endif

/* Map a shared object; the file that the system's loader wants is not left behind. */
static void *load_library(const byte *code, size_t size, char *why, size_t room) {
  void *library = NULL;
  snprintf(why, room, "no temporary file can be written");
#if defined(_WIN32)
  {
    char folder[MAX_PATH], path[MAX_PATH];
    DWORD written = 0;
    HANDLE file;
    if (!GetTempPathA(sizeof folder, folder) || !GetTempFileNameA(folder, "wft", 0, path))
      return NULL;
    file = CreateFileA(path, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    if (file == INVALID_HANDLE_VALUE) return NULL;
    if (WriteFile(file, code, (DWORD)size, &written, NULL) && written == size) {
      CloseHandle(file);
      library = (void *)LoadLibraryA(path);
      snprintf(why, room, "LoadLibrary: error %lu", (unsigned long)GetLastError());
    } else {
      CloseHandle(file);
    }
    if (!library) DeleteFileA(path); /* a loaded file is removed at the next start of the system */
    else MoveFileExA(path, NULL, MOVEFILE_DELAY_UNTIL_REBOOT);
  }
#else
  {
    char path[PATH_MAX];
    int descriptor = -1;
#if defined(__linux__) && defined(SYS_memfd_create)
    descriptor = (int)syscall(SYS_memfd_create, "weft", 1u /* close on exec */);
    if (descriptor >= 0) {
      snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
      if (write_all(descriptor, code, size)) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (!library) snprintf(why, room, "%s", dlerror());
      close(descriptor);
      if (library) return library;
    }
#endif
    {
      const char *folder = getenv("TMPDIR");
      snprintf(path, sizeof path, "%s/weft-XXXXXX", folder && *folder ? folder : "/tmp");
    }
    descriptor = mkstemp(path);
    if (descriptor < 0) return NULL;
    if (write_all(descriptor, code, size)) {
      library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (!library) snprintf(why, room, "%s", dlerror());
    }
    close(descriptor);
    unlink(path);
  }
#endif
  return library;
}

static weft_code describe(const weft_file *file, const char *entry, weft_program *program,
                          block *memory, char *folder, weft_error *error) {
  json manifest;
  weft_code code;
  manifest.at = manifest.end = NULL;
  memset(program, 0, sizeof *program);
  code = find_program(file, entry, folder, &manifest, error);
  return code ? code : keep_manifest(manifest, program, memory, error);
}

weft_code weft_program_bytes(const weft_file *file, const char *entry, size_t *bytes,
                             weft_error *error) {
  weft_program program;
  block memory = {NULL, 0, 0, 0};
  char folder[MAX_NAME];
  weft_code code;
  if (!bytes) return fail(error, WEFT_NULL_POINTER, "weft_program_bytes: NULL");
  code = describe(file, entry, &program, &memory, folder, error);
  *bytes = code ? 0 : memory.used;
  return code ? code : fine(error);
}

/* Offsets of first values are inside of the constants. */
static int initial_fit(const weft_program *program) {
  for (int i = 0; i < program->num_initial; i++) {
    const weft_tensor *state = &program->states[i];
    uint64_t bytes = state->element_bytes, at = (uint64_t)program->initial[i].value;
    for (int axis = 0; axis < state->rank; axis++) {
      int64_t size = state->shape[axis].value;
      if (state->shape[axis].text || size < 0 || size > MAX_BYTES) return 0;
      bytes *= (uint64_t)size;
      if (bytes > (uint64_t)MAX_BYTES) return 0;
    }
    if (program->initial[i].text || at > program->constants_bytes ||
        bytes > program->constants_bytes - at)
      return 0;
  }
  return 1;
}

weft_code weft_load(weft_program *program, const weft_file *file, const char *entry, void *memory,
                    size_t bytes, weft_error *error) {
  char folder[MAX_NAME], path[MAX_NAME + 16], why[160];
  const byte *code_data = NULL;
  size_t size = 0;
  block space;
  void *functions[3];
  weft_code code;
  if (!program || !memory) return fail(error, WEFT_NULL_POINTER, "weft_load: NULL");
  if ((uintptr_t)memory % 8) return fail(error, WEFT_UNALIGNED, "memory for weft_load");
  space.base = (byte *)memory;
  space.size = bytes;
  space.used = 0;
  space.is_full = 0;
  if ((code = describe(file, entry, program, &space, folder, error))) return code;
  if (program->constants_bytes || program->num_initial) {
    if ((code = read_member(file, CONSTANTS, &program->constants, &size, error))) return code;
    if (size < program->constants_bytes)
      return fail(error, WEFT_DAMAGED, "%s is too short", CONSTANTS);
    if ((uintptr_t)program->constants % ALIGNMENT)
      return fail(error, WEFT_UNALIGNED, "%s is not at a multiple of %d", CONSTANTS, ALIGNMENT);
  }
  if (!initial_fit(program))
    return fail(error, WEFT_DAMAGED, "a damaged manifest: first values of states");
  snprintf(path, sizeof path, "%s/lib.so", folder);
  if ((code = read_member(file, path, &code_data, &size, error))) return code;
  program->library = load_library(code_data, size, why, sizeof why);
  if (!program->library) return fail(error, WEFT_CANNOT_LOAD, "%s", why);
  functions[0] = symbol(program->library, "weft_main");
  functions[1] = symbol(program->library, "weft_set_thread_pool");
  functions[2] = symbol(program->library, "weft_worker");
  if (!functions[0]) {
    weft_unload(program);
    return fail(error, WEFT_MISSING_SYMBOL, "the code does not define weft_main");
  }
  memcpy(&program->main, &functions[0], sizeof functions[0]);
  memcpy(&program->set_pool, &functions[1], sizeof functions[1]);
  memcpy(&program->worker, &functions[2], sizeof functions[2]);
  return fine(error);
}

void weft_unload(weft_program *program) {
  if (program && !program->is_pinned) unload(program->library);
  if (program) memset(program, 0, sizeof *program);
}

/* ---- sizes: + - * // max min floordiv over int64, as in weft/runtime/sizes.py ---- */

typedef struct reader {
  const char *at;
  const weft_program *program;
  const int64_t *symbols, *table;
  int known; /* entries of the table that have values */
  int depth;
  weft_code code;
} reader;

static int64_t sum(reader *r);

static int64_t wrong(reader *r, weft_code code) {
  if (r->code == WEFT_OK) r->code = code;
  return 0;
}

static int64_t product_of(reader *r, int64_t a, int64_t b) {
  if (a && b && (a == INT64_MIN || b == INT64_MIN ||
                 (a < 0 ? -a : a) > INT64_MAX / (b < 0 ? -b : b)))
    return wrong(r, WEFT_WRONG_SIZE);
  return a * b;
}

static int64_t sum_of(reader *r, int64_t a, int64_t b) {
  if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return wrong(r, WEFT_WRONG_SIZE);
  return a + b;
}

/* Rounds down. */
static int64_t quotient_of(reader *r, int64_t a, int64_t b) {
  if (b <= 0) return wrong(r, WEFT_WRONG_SIZE);
  return a / b - (a % b < 0);
}

static int token(reader *r, const char *text) {
  size_t length = strlen(text);
  while (*r->at == ' ') r->at++;
  if (strncmp(r->at, text, length)) return 0;
  r->at += length;
  return 1;
}

static int is_part(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (byte)c >= 0x80;
}

static int64_t call_of(reader *r, char kind) {
  int64_t best = sum(r);
  int more = 0;
  while (token(r, ",")) {
    int64_t next = sum(r);
    more++;
    best = kind == 'f' ? quotient_of(r, best, next)
         : kind == 'x' ? (next > best ? next : best) : (next < best ? next : best);
  }
  if (!token(r, ")") || !more || (kind == 'f' && more > 1)) return wrong(r, WEFT_DAMAGED);
  return best;
}

static int64_t name_of(reader *r, const char *start, size_t length) {
  const weft_program *program = r->program;
  if (length > 1 && start[0] == '_' && start[1] >= '0' && start[1] <= '9') {
    char *end;
    long entry = strtol(start + 1, &end, 10);
    if (end != start + length || entry < 0 || entry >= r->known) return wrong(r, WEFT_DAMAGED);
    return r->table[entry];
  }
  for (int i = 0; i < program->num_symbols; i++)
    if (strlen(program->symbols[i].name) == length &&
        !memcmp(program->symbols[i].name, start, length))
      return r->symbols[i];
  return wrong(r, WEFT_DAMAGED);
}

static int64_t primary(reader *r) {
  const char *start;
  size_t length;
  if (++r->depth > 200) return wrong(r, WEFT_UNSUPPORTED);
  if (token(r, "(")) {
    int64_t inner = sum(r);
    r->depth--;
    return token(r, ")") ? inner : wrong(r, WEFT_DAMAGED);
  }
  start = r->at;
  while (is_part(*r->at)) r->at++;
  length = (size_t)(r->at - start);
  if (length && *start >= '0' && *start <= '9') {
    int64_t value = 0;
    for (; start < r->at; start++) {
      if (*start < '0' || *start > '9') return wrong(r, WEFT_DAMAGED);
      value = sum_of(r, product_of(r, value, 10), *start - '0');
    }
    r->depth--;
    return value;
  }
  {
    static const char *const CALLS[] = {"floordiv", "max", "min"};
    for (int i = 0; i < 3; i++)
      if (length == strlen(CALLS[i]) && !memcmp(start, CALLS[i], length) && token(r, "(")) {
        int64_t value = call_of(r, "fxn"[i]);
        r->depth--;
        return value;
      }
  }
  r->depth--;
  return length ? name_of(r, start, length) : wrong(r, WEFT_DAMAGED);
}

static int64_t factor(reader *r) {
  int negative = 0;
  int64_t value;
  while (token(r, "-")) negative = !negative;
  value = primary(r);
  return negative ? product_of(r, value, -1) : value;
}

static int64_t product(reader *r) {
  int64_t value = factor(r);
  while (r->code == WEFT_OK) {
    if (token(r, "//")) value = quotient_of(r, value, factor(r));
    else if (token(r, "*")) value = product_of(r, value, factor(r));
    else break;
  }
  return value;
}

static int64_t sum(reader *r) {
  int64_t value = product(r);
  while (r->code == WEFT_OK) {
    if (token(r, "+")) value = sum_of(r, value, product(r));
    else if (token(r, "-")) value = sum_of(r, value, product_of(r, product(r), -1));
    else break;
  }
  return value;
}

static int64_t evaluate(reader *r, const weft_size *size) {
  int64_t value;
  if (!size->text) return size->value;
  r->at = size->text;
  r->depth = 0;
  value = sum(r);
  while (*r->at == ' ') r->at++;
  return *r->at ? wrong(r, WEFT_DAMAGED) : value;
}

/* ---- calls ---- */

static size_t num_arrays(const weft_program *program) {
  return (size_t)program->num_inputs + (size_t)program->num_outputs + (size_t)program->num_states;
}

static void call_memory(weft_call *call, const weft_program *program, block *memory) {
  call->array_bytes = (size_t *)give(memory, num_arrays(program), sizeof(size_t));
  call->symbols = (int64_t *)give(memory, (size_t)program->num_symbols, sizeof(int64_t));
  call->table = (int64_t *)give(memory, (size_t)program->num_sizes, sizeof(int64_t));
  call->arguments = (const void **)give(
      memory, (size_t)program->num_inputs + (size_t)program->num_states + 1, sizeof(void *));
  call->results = (void **)give(memory, (size_t)program->num_outputs + 1, sizeof(void *));
}

size_t weft_call_bytes(const weft_program *program) {
  weft_call call;
  block memory = {NULL, 0, 0, 0};
  if (!program || !program->main) return 0;
  call_memory(&call, program, &memory);
  return memory.used;
}

static size_t bytes_of(reader *r, const weft_tensor *tensor) {
  int64_t bytes = (int64_t)tensor->element_bytes;
  int is_empty = 0;
  for (int axis = 0; axis < tensor->rank; axis++) {
    int64_t size = evaluate(r, &tensor->shape[axis]);
    if (size < 0) wrong(r, WEFT_WRONG_SIZE);
    is_empty |= !size;
    bytes = product_of(r, bytes, size ? size : 1);
  }
  if (bytes > MAX_BYTES) wrong(r, WEFT_WRONG_SIZE);
  return is_empty ? 0 : (size_t)bytes;
}

weft_code weft_prepare(weft_call *call, const weft_program *program, const int64_t *symbols,
                       void *memory, size_t bytes, weft_error *error) {
  block space;
  reader r;
  int64_t arena;
  int at = 0;
  if (!call || !program || !program->main || !memory || (program->num_symbols && !symbols))
    return fail(error, WEFT_NULL_POINTER, "weft_prepare: NULL");
  if ((uintptr_t)memory % 8) return fail(error, WEFT_UNALIGNED, "memory for weft_prepare");
  memset(call, 0, sizeof *call);
  space.base = (byte *)memory;
  space.size = bytes;
  space.used = 0;
  space.is_full = 0;
  call_memory(call, program, &space);
  if (space.is_full)
    return fail(error, WEFT_NO_MEMORY, "weft_prepare needs %lu bytes, not %lu",
                (unsigned long)weft_call_bytes(program), (unsigned long)bytes);
  for (int i = 0; i < program->num_symbols; i++) {
    const weft_symbol *one = &program->symbols[i];
    int64_t value = symbols[i];
    if (value < one->low || (one->high >= 0 && value > one->high) || value % one->multiple)
      return fail(error, WEFT_WRONG_SIZE, "the size %.100s cannot be %ld", one->name, (long)value);
    call->symbols[i] = value;
  }
  memset(&r, 0, sizeof r);
  r.program = program;
  r.symbols = call->symbols;
  r.table = call->table;
  for (; r.known < program->num_sizes && r.code == WEFT_OK; r.known++)
    call->table[r.known] = evaluate(&r, &program->sizes[r.known]);
  arena = evaluate(&r, &program->arena);
  if (arena < 0 || arena > MAX_BYTES) wrong(&r, WEFT_WRONG_SIZE);
  for (int i = 0; i < program->num_nonnegative; i++)
    if (evaluate(&r, &program->nonnegative[i]) < 0) wrong(&r, WEFT_WRONG_SIZE);
  for (int i = 0; i < program->num_inputs; i++)
    call->array_bytes[at++] = bytes_of(&r, &program->inputs[i]);
  for (int i = 0; i < program->num_outputs; i++)
    call->array_bytes[at++] = bytes_of(&r, &program->outputs[i]);
  for (int i = 0; i < program->num_states; i++)
    call->array_bytes[at++] = bytes_of(&r, &program->states[i]);
  if (r.code)
    return fail(error, r.code, r.code == WEFT_WRONG_SIZE
                                   ? "an array would have a negative size, or is too large"
                                   : "a damaged manifest: a size");
  call->workspace_bytes = (size_t)arena;
  call->program = program;
  return fine(error);
}

/* The arrays have the sizes of the call, and are aligned as their elements are. */
static weft_code check_arrays(const weft_array *arrays, const weft_tensor *tensors,
                              const size_t *bytes, int count, weft_error *error) {
  if (count && !arrays) return fail(error, WEFT_NULL_POINTER, "the arrays of a call are NULL");
  for (int i = 0; i < count; i++) {
    size_t alignment = tensors[i].element_bytes < 8 ? tensors[i].element_bytes : 8;
    if (arrays[i].bytes != bytes[i])
      return fail(error, WEFT_WRONG_SIZE, "%.100s has %lu bytes, not %lu", tensors[i].name,
                  (unsigned long)bytes[i], (unsigned long)arrays[i].bytes);
    if (!arrays[i].data && bytes[i])
      return fail(error, WEFT_NULL_POINTER, "%.100s is NULL", tensors[i].name);
    if ((uintptr_t)arrays[i].data % alignment)
      return fail(error, WEFT_UNALIGNED, "%.100s is not at a multiple of %lu", tensors[i].name,
                  (unsigned long)alignment);
  }
  return WEFT_OK;
}

static const size_t *state_bytes(const weft_call *call) {
  return call->array_bytes + call->program->num_inputs + call->program->num_outputs;
}

weft_code weft_init_states(const weft_call *call, const weft_array *states, weft_error *error) {
  const weft_program *program = call ? call->program : NULL;
  weft_code code;
  if (!program) return fail(error, WEFT_NULL_POINTER, "the call is not prepared");
  code = check_arrays(states, program->states, state_bytes(call), program->num_states, error);
  if (code) return code;
  for (int i = 0; i < program->num_states; i++) {
    size_t bytes = states[i].bytes;
    if (!bytes) continue;
    if (program->num_initial)
      memcpy(states[i].data, program->constants + program->initial[i].value, bytes);
    else
      memset(states[i].data, 0, bytes);
  }
  return fine(error);
}

weft_code weft_run(const weft_call *call, const weft_array *inputs, const weft_array *outputs,
                   const weft_array *states, void *workspace, size_t workspace_bytes,
                   weft_error *error) {
  const weft_program *program = call ? call->program : NULL;
  weft_code code;
  int status;
  if (!program) return fail(error, WEFT_NULL_POINTER, "the call is not prepared");
  if ((code = check_arrays(inputs, program->inputs, call->array_bytes, program->num_inputs,
                           error)) ||
      (code = check_arrays(outputs, program->outputs, call->array_bytes + program->num_inputs,
                           program->num_outputs, error)) ||
      (code = check_arrays(states, program->states, state_bytes(call), program->num_states,
                           error)))
    return code;
  if (workspace_bytes < call->workspace_bytes)
    return fail(error, WEFT_NO_MEMORY, "the workspace has %lu bytes, not %lu",
                (unsigned long)workspace_bytes, (unsigned long)call->workspace_bytes);
  if (call->workspace_bytes && !workspace)
    return fail(error, WEFT_NULL_POINTER, "the workspace is NULL");
  if ((uintptr_t)workspace % ALIGNMENT)
    return fail(error, WEFT_UNALIGNED, "the workspace is not at a multiple of %d", ALIGNMENT);
  for (int i = 0; i < program->num_inputs; i++) call->arguments[i] = inputs[i].data;
  for (int i = 0; i < program->num_states; i++)
    call->arguments[program->num_inputs + i] = states[i].data;
  call->arguments[program->num_inputs + program->num_states] = call->symbols;
  for (int i = 0; i < program->num_outputs; i++) call->results[i] = outputs[i].data;
  status = program->main(call->arguments, call->results, program->constants, workspace);
  return status ? fail(error, WEFT_FAILED, "the program returned %d", status) : fine(error);
}

/* ---- threads: the layout of weft/runtime/devices/cpu/thread_pool.py ---- */

enum {
  LINE = 128,
  POOL_GATE = 0,
  POOL_WAIT = 3 * LINE,
  POOL_POST = 3 * LINE + 8,
  POOL_YIELD = 3 * LINE + 16,
  POOL_SPINS = 3 * LINE + 24,
  POOL_WORKERS = 3 * LINE + 32,
  POOL_LINES = 4 * LINE,
  LINE_POOL = 8,
  LINE_NUMBER = 16,
  LINE_SEMAPHORE = 64,
  MAX_THREADS = 4096
};

size_t weft_pool_bytes(int count) {
  return count < 1 || count > MAX_THREADS ? 0 : POOL_LINES + (size_t)count * LINE;
}

weft_code weft_pool_init(weft_program *program, void *memory, size_t bytes, int count,
                         weft_error *error) {
  if (!program || !program->main || !memory)
    return fail(error, WEFT_NULL_POINTER, "weft_pool_init: NULL");
  if (!weft_pool_bytes(count)) return fail(error, WEFT_WRONG_SIZE, "1 to %d threads", MAX_THREADS);
  if (bytes < weft_pool_bytes(count)) return fail(error, WEFT_NO_MEMORY, "memory of a pool");
  if ((uintptr_t)memory % LINE) return fail(error, WEFT_UNALIGNED, "memory of a pool");
  if (!program->worker || !program->set_pool)
    return fail(error, WEFT_MISSING_SYMBOL, "the code has no threads");
#if defined(__linux__)
  {
    byte *pool = (byte *)memory;
    int (*wait)(sem_t *) = sem_wait, (*post)(sem_t *) = sem_post, (*yield)(void) = sched_yield;
    uint64_t closed = (uint64_t)1 << 31, spins = 30000, workers = (uint64_t)count - 1;
    memset(pool, 0, weft_pool_bytes(count));
    for (int i = 1; i < count; i++) {
      byte *line = pool + POOL_LINES + (size_t)i * LINE;
      uint64_t self = (uint64_t)i;
      memcpy(line + LINE_POOL, &memory, sizeof memory);
      memcpy(line + LINE_NUMBER, &self, sizeof self);
      if (sem_init((sem_t *)(void *)(line + LINE_SEMAPHORE), 0, 0))
        return fail(error, WEFT_UNSUPPORTED, "the system has no semaphores");
    }
    memcpy(pool + POOL_WAIT, &wait, sizeof wait);
    memcpy(pool + POOL_POST, &post, sizeof post);
    memcpy(pool + POOL_YIELD, &yield, sizeof yield);
    memcpy(pool + POOL_SPINS, &spins, sizeof spins);
    memcpy(pool + POOL_GATE, &closed, sizeof closed);
    memcpy(pool + POOL_WORKERS, &workers, sizeof workers);
    program->is_pinned = 1;
    program->set_pool(pool, count);
    return fine(error);
  }
#else
  return fail(error, WEFT_UNSUPPORTED, "pools of threads are for Linux");
#endif
}

void *weft_pool_work(const weft_program *program, void *memory, int number) {
  return program->worker((byte *)memory + POOL_LINES + (size_t)number * LINE);
}
