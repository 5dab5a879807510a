#include "option/option.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof(*(a)))

const char *const ps_kind_words[] = {
        "image", "int64", "bytes", "npy", "json", "text", "mask", "boxes", "tokens", "float", "output", NULL};
const char *const ps_dtype_words[] = {
        "u8", "f32", "f16", "bf16", "i32", "i64", "f64", "u16", "u32", "u64", "i8", "i16", "bool", NULL};

/* Those of source_dtype. */
static const char *const source_words[] = {"auto", "f32", "f16", "bf16", "i32", "i64", "f64", "u16", "u32",
        "u64", "i8", "i16", "bool", "u8", NULL};

#define WORDS(...)                \
	(const char *const[])     \
	{                         \
		__VA_ARGS__, NULL \
	}

/* Loaders ------------------------------------------------------------------------------------------------ */

#define OPTION(member, kind, ...)                                                                           \
	{                                                                                                   \
		.name = #member, .type = PS_OPTION_##kind, .at = offsetof(struct penstock_options, member), \
		.nbytes = sizeof(((struct penstock_options *)0)->member), __VA_ARGS__                       \
	}

const struct ps_option ps_loader_options[] = {
        OPTION(batch, U32, .least = 1, .most = PS_OPTIONS_MAX_BATCH, .initial = 64, .flag = "N",
                .print = PS_PRINT_OWN, .text = "samples per batch"),
        OPTION(depth, U32, .least = 2, .most = 64, .flag = "N|auto", .print = PS_PRINT_NEVER,
                .text = "batches in memory", .unset = "auto: 4, or fewer if batches are large"),
        OPTION(threads, U32, .least = 1, .most = PS_OPTIONS_MAX_THREADS, .flag = "N|auto",
                .print = PS_PRINT_NEVER, .text = "decoding threads",
                .unset = "auto: one per CPU that the process may use, plus one with transform_unit or a map"),
        OPTION(readers, U32, .least = 1, .most = 64, .flag = "N|auto", .print = PS_PRINT_NEVER,
                .text = "reading threads",
                .unset = "auto: as many as threads, within 2 to 8; 8 on a Penstock mount"),
        OPTION(memory_budget, U64, .initial = 512 << 20, .flag = "SIZE", .print = PS_PRINT_NEVER,
                .unit = "bytes", .text = "memory for batches, read buffers and the shuffle window",
                .unset = "512M"),
        OPTION(seed, U64, .flag = "S", .print = PS_PRINT_OWN, .text = "seed of all random choices"),
        OPTION(epoch, U64, .print = PS_PRINT_NEVER, .text = "first epoch"),
        OPTION(epochs, U64, .print = PS_PRINT_NEVER, .text = "number of epochs in the run",
                .unset = "0: no end"),
        OPTION(order, U32, .words = WORDS("none", "shards", "window", "permutation"),
                .most = PENSTOCK_ORDER_NUMBERS, .initial = PENSTOCK_ORDER_WINDOW, .flag = PS_FLAG_WORDS,
                .print = PS_PRINT_OWN, .text = "what is shuffled"),
        OPTION(lanes, U32, .most = 16384, .flag = "N", .print = PS_PRINT_OWN,
                .text = "sequences of shards that are read in parallel",
                .unset = "chosen from the global batch and the number of shards"),
        OPTION(shuffle_window, U32, .least = 1, .most = 1 << 24, .flag = "N", .print = PS_PRINT_OWN,
                .text = "samples in the shuffle window",
                .unset = "4096, or 16 global batches if that is more"),
        OPTION(homes, U32, .least = 1, .most = 16384, .flag = "H", .print = PS_PRINT_OWN,
                .text = "groups of shards that keep their lanes in every epoch, so that caches stay warm",
                .unset = "1: none"),
        OPTION(end, U32, .words = WORDS("uneven", "drop_last", "pad", "split", "gather"),
                .initial = PENSTOCK_END_SPLIT, .flag = PS_FLAG_WORDS, .print = PS_PRINT_OWN,
                .text = "how an epoch ends"),
        OPTION(profile, U32, .most = 1, .print = PS_PRINT_NEVER, .text = "1: collect a profile of the data"),
        OPTION(device_pixels, U32, .words = WORDS("auto", "off"), .flag = PS_FLAG_WORDS,
                .print = PS_PRINT_NEVER, .text = "whether the device or the CPU finishes images",
                .unset = "auto: the device, if it can"),
        OPTION(on_error, U32, .words = WORDS("fail", "skip"), .flag = PS_FLAG_WORDS, .print = PS_PRINT_NEVER,
                .text = "what to do about a bad sample or a missing shard"),
        OPTION(rank, U32, .flag = "R", .print = PS_PRINT_NEVER,
                .text = "number of this process, from 0, less than world"),
        OPTION(world, U32, .least = 1, .most = 1 << 20, .initial = 1, .flag = "W", .print = PS_PRINT_OWN,
                .text = "number of processes that share the epoch"),
        OPTION(max_bad, U32, .initial = 100, .flag = "N", .print = PS_PRINT_NEVER,
                .text = "with on_error skip: more bad samples than this in a row end the run"),
        OPTION(device, TEXT, .flag = "cpu|cuda|cuda:N", .print = PS_PRINT_NEVER,
                .text = "where batches are stored", .unset = "cpu"),
        OPTION(index_dir, TEXT, .flag = "DIR", .print = PS_PRINT_NEVER,
                .text = "folder of the shards' indexes (index --dir); by default next to the shards",
                .unset = ""),
        OPTION(state, BLOB, .print = PS_PRINT_NEVER, .text = "saved state to resume from", .unset = ""),
        OPTION(transform_version, U64, .print = PS_PRINT_OWN,
                .text = "version of the transform; raise it when the results of the transform change"),
        OPTION(global_batch, U32, .print = PS_PRINT_OWN, .text = "samples per batch over all ranks",
                .unset = "batch times world"),
        OPTION(bucket, U32, .most = 256, .print = PS_PRINT_OWN,
                .text = "with order window: number of runs of similar length in each window",
                .unset = "0: none"),
        OPTION(steps, U64, .most = 0x1p40, .flag = "N", .print = PS_PRINT_OWN, .text = "batches per epoch",
                .unset = "0: as many as the samples fill"),
        OPTION(repeat, U64, .most = 0x1p40, .print = PS_PRINT_OWN, .text = "passes over the data per epoch",
                .unset = "0: one, or as many as steps needs"),
        OPTION(skip, U64, .most = 0x1p60, .print = PS_PRINT_OWN,
                .text = "samples to skip at the beginning of each epoch"),
        OPTION(take, U64, .most = 0x1p60, .print = PS_PRINT_OWN,
                .text = "maximum number of samples per epoch, after skip", .unset = "0: all"),
        OPTION(mix_end, U32, .words = WORDS("first", "longest"), .print = PS_PRINT_OWN,
                .text = "which dataset ends the epoch of a mix, the first that runs out or the longest"),
        OPTION(mix, MIX, .print = PS_PRINT_OWN, .text = "weights of the datasets, 0 or more", .unset = ""),
        OPTION(permute_remote, U32, .print = PS_PRINT_NEVER,
                .text = "1: allow access by number to shards that are not in their mount's cache yet"),
        OPTION(mixup_alpha, F64, .least = 0.01, .most = 100, .print = PS_PRINT_OWN,
                .text = "alpha of MixUp's beta distribution", .unset = "0: off"),
        OPTION(cutmix_alpha, F64, .least = 0.01, .most = 100, .print = PS_PRINT_OWN,
                .text = "alpha of CutMix's beta distribution", .unset = "0: off"),
        OPTION(mix_probability, F64, .most = 1, .initial = 1, .print = PS_PRINT_OWN,
                .text = "probability that a batch is mixed"),
        OPTION(cutmix_share, F64, .most = 1, .initial = 0.5, .print = PS_PRINT_OWN,
                .text = "with both alphas: share of mixed batches that use CutMix"),
        OPTION(budget, BUDGET, .print = PS_PRINT_NEVER, .text = "memory limit that loaders share",
                .unset = "none"),
        OPTION(source, U32, .words = WORDS("auto", "tar", "lines", "tokens"), .print = PS_PRINT_OWN,
                .text = "format of the shards", .unset = "auto: decided by their names"),
        OPTION(write_index, U32, .print = PS_PRINT_NEVER,
                .gone = "index make creates missing indexes, and so does penstock-loader index"),
        OPTION(token_stride, U64, .print = PS_PRINT_OWN, .unit = "tokens",
                .text = "distance between the starts of consecutive windows",
                .unset = "0: the length of the field"),
        OPTION(rename, TEXT, .print = PS_PRINT_OWN,
                .text = "field names that differ from the member names: \"image=jpg;png\"", .unset = ""),
        OPTION(filter, TEXT, .print = PS_PRINT_OWN,
                .text = "condition on index columns that selects samples: \"label == 3 && h >= 256\"",
                .unset = "all"),
        OPTION(weights, TEXT, .print = PS_PRINT_OWN, .text = "index column with the weights of the samples",
                .unset = "each sample once"),
        OPTION(balance, TEXT, .print = PS_PRINT_OWN,
                .text = "index column whose values are drawn equally often", .unset = ""),
        OPTION(replacement, U32, .most = 1, .print = PS_PRINT_OWN,
                .text = "1: a weight is how often a sample is drawn on average; 0: its probability"),
        OPTION(job, TEXT, .print = PS_PRINT_NEVER, .text = "name of the run for Penstock mounts",
                .unset = "loader"),
        OPTION(plan_epochs, U32, .print = PS_PRINT_NEVER,
                .gone = "the loader always announces 8 epochs to a Penstock mount"),
        OPTION(ranks_per_node, U32, .least = 1, .flag = "K", .print = PS_PRINT_NEVER,
                .text = "ranks per machine; must divide world", .unset = "1"),
        OPTION(gpu_decode, F64, .flag = "SHARE|auto", .print = PS_PRINT_NEVER,
                .text = "with device cuda: share of JPEGs that the GPU decodes, 0 to 1"),
        OPTION(index, U32, .words = WORDS("take", "make"), .print = PS_PRINT_NEVER,
                .text = "what to do about shards without an index"),
        OPTION(sample_weights, WORDS, .print = PS_PRINT_OWN,
                .text = "weights of all samples, by sample number", .unset = ""),
        OPTION(draws, U64, .most = 0x1p40, .print = PS_PRINT_OWN,
                .text = "samples that each pass draws by weight", .unset = "0: decided by the weights"),
        OPTION(numbers, WORDS, .print = PS_PRINT_OWN, .text = "numbers of the samples of this rank, in order",
                .unset = ""),
        OPTION(batch_ends, WORDS, .print = PS_PRINT_OWN, .text = "positions in numbers at which batches end",
                .unset = ""),
        OPTION(mix_stages, STAGES, .print = PS_PRINT_OWN,
                .text = "stages of a mix whose weights change during an epoch", .unset = ""),
        OPTION(mix_names, NAMES, .print = PS_PRINT_OWN, .text = "names of the datasets", .unset = ""),
        OPTION(state_flags, U32, .print = PS_PRINT_NEVER,
                .text = "how the saved state may differ: 1: in its mix, 2: in its fields"),
};
const size_t ps_n_loader_options = ARRAY_LEN(ps_loader_options);

/* Fields ------------------------------------------------------------------------------------------------- */

enum {
	IMAGE = 1u << PENSTOCK_IMAGE,
	INT64 = 1u << PENSTOCK_INT64,
	BYTES = 1u << PENSTOCK_BYTES,
	NPY = 1u << PENSTOCK_NPY,
	JSON = 1u << PENSTOCK_JSON,
	TEXT = 1u << PENSTOCK_TEXT,
	MASK = 1u << PENSTOCK_MASK,
	BOXES = 1u << PENSTOCK_BOXES,
	TOKENS = 1u << PENSTOCK_TOKENS,
	FLOAT = 1u << PENSTOCK_FLOAT,
	OUTPUT = 1u << PENSTOCK_OUTPUT,
	ITEMS = BYTES | NPY | JSON | TEXT | BOXES | TOKENS | OUTPUT,
	NUMBERS = INT64 | FLOAT,
	ALL = IMAGE | MASK | NUMBERS | ITEMS,
};

#define FIELD_AT(member_name, member, kind, of, ...)                                \
	{                                                                           \
		.name = member_name, .type = PS_OPTION_##kind, .kinds = of,         \
		.at = offsetof(struct penstock_field, member),                      \
		.nbytes = sizeof(((struct penstock_field *)0)->member), __VA_ARGS__ \
	}
#define FIELD(member, kind, of, ...) FIELD_AT(#member, member, kind, of, __VA_ARGS__)
#define PLACING .placing = true

/* All options except name and kind, which choose the defaults of the others. */
const struct ps_option ps_field_options[] = {
        FIELD(image_width, U32, IMAGE, PLACING, .least = 1, .most = 16384, .initial = 224,
                .print = PS_PRINT_IMAGE, .unit = "pixels", .text = "width of the result"),
        FIELD(image_height, U32, IMAGE, PLACING, .least = 1, .most = 16384, .initial = 224,
                .print = PS_PRINT_IMAGE, .unit = "pixels", .text = "height of the result"),
        FIELD(optional, U32, ALL, .print = PS_PRINT_COLUMN, .text = "1: a sample may lack the field"),
        FIELD(missing_value, I64, ALL & ~(IMAGE | FLOAT), .need = PS_NEEDS_FIXED, .initial = -1,
                .print = PS_PRINT_COLUMN,
                .text = "value of all elements of a row whose sample lacks the field"),
        FIELD(dtype, U32, ALL & ~(BYTES | TEXT), .need = PS_NEEDS_PATH, .words = ps_dtype_words,
                .print = PS_PRINT_IMAGE | PS_PRINT_COLUMN, .text = "type of the elements",
                .unset = "f32; integers and labels: i64; JSON texts: u8"),
        FIELD(layout, U32, IMAGE, .words = WORDS("nchw", "nhwc"), .print = PS_PRINT_IMAGE,
                .text = "order of the dimensions"),
        FIELD(crop, U32, IMAGE, PLACING,
                .words = WORDS("random", "center", "none", "random_crop", "letterbox"),
                .print = PS_PRINT_IMAGE,
                .text = "RandomResizedCrop; Resize and CenterCrop; the complete image, stretched; "
                        "RandomCrop; "
                        "the complete image, padded"),
        FIELD(interpolation, U32, IMAGE, .need = PS_NEEDS_RESIZE, .words = WORDS("bilinear", "bicubic"),
                .print = PS_PRINT_IMAGE, .text = "method of the resize, antialiased"),
        FIELD(resize_shorter, U32, IMAGE, PLACING, .need = PS_NEEDS_CROP, .most = 16384,
                .print = PS_PRINT_IMAGE, .unit = "pixels",
                .text = "length of the shorter side before the crop",
                .unset = "0: not resized; crop center: 8/7 of the result"),
        FIELD(scale_min, F64, IMAGE, PLACING, .need = PS_NEEDS_RANDOM, .most = 1, .initial = 0.08,
                .print = PS_PRINT_IMAGE, .text = "smallest share of the area"),
        FIELD(scale_max, F64, IMAGE, PLACING, .need = PS_NEEDS_RANDOM, .most = 1, .initial = 1,
                .print = PS_PRINT_IMAGE, .text = "largest share of the area"),
        FIELD(ratio_min, F64, IMAGE, PLACING, .need = PS_NEEDS_RANDOM, .least = 0.001, .most = 1000,
                .initial = 3.0 / 4, .print = PS_PRINT_IMAGE, .text = "smallest width / height of the crop",
                .unset = "3/4"),
        FIELD(ratio_max, F64, IMAGE, PLACING, .need = PS_NEEDS_RANDOM, .least = 0.001, .most = 1000,
                .initial = 4.0 / 3, .print = PS_PRINT_IMAGE, .text = "largest width / height of the crop",
                .unset = "4/3"),
        FIELD(hflip, F64, IMAGE, PLACING, .most = 1, .initial = 0.5, .print = PS_PRINT_IMAGE,
                .text = "probability of a horizontal flip"),
        FIELD(mean, F32X3, IMAGE, .need = PS_NEEDS_MEAN, .print = PS_PRINT_OWN,
                .text = "mean of each channel, of values 0 to 1", .unset = "ImageNet's"),
        FIELD(std, F32X3, IMAGE, .need = PS_NEEDS_STD, .least = 1e-6, .most = 1e6, .print = PS_PRINT_OWN,
                .text = "standard deviation of each channel, of values 0 to 1", .unset = "ImageNet's"),
        FIELD(max_pixels, U64, IMAGE | MASK, .print = PS_PRINT_IMAGE, .unit = "pixels",
                .text = "larger images are bad samples", .unset = "2^27"),
        FIELD_AT("shape", ndim, SHAPE, NPY | JSON | TOKENS | BOXES | OUTPUT, .need = PS_NEEDS_ARRAY,
                .print = PS_PRINT_COLUMN,
                .text = "shape of a row, at most 7 dimensions; a leading 0: as many items as the sample has",
                .unset = ""),
        FIELD(pad_to, U32, ITEMS | NUMBERS, .print = PS_PRINT_COLUMN, .unit = "items",
                .text = "pad rows to this length", .unset = "0: rows are ragged"),
        FIELD(pad_multiple, U32, ITEMS, .need = PS_NEEDS_LONGEST, .print = PS_PRINT_COLUMN,
                .text = "pad the longest row to a multiple of this", .unset = "1"),
        FIELD(overflow, U32, ITEMS, .need = PS_NEEDS_BOUND, .words = WORDS("error", "bad", "truncate"),
                .print = PS_PRINT_COLUMN, .text = "what happens to a longer row"),
        FIELD(pad_value, I64, ITEMS, .need = PS_NEEDS_PADDING, .print = PS_PRINT_COLUMN,
                .text = "value of padding elements"),
        FIELD(max_bytes, U64, ITEMS | NUMBERS, .print = PS_PRINT_COLUMN, .unit = "bytes",
                .text = "maximum size of a ragged row", .unset = "0: no limit"),
        FIELD(add_offset_of, TEXT, ITEMS | NUMBERS, .print = PS_PRINT_OWN,
                .text = "ragged field whose items these numbers index; in a batch they index the items of "
                        "all rows",
                .unset = ""),
        FIELD(source_dtype, U32, TOKENS, .words = source_words, .print = PS_PRINT_COLUMN,
                .text = "type of tokens in raw members: u8 | u16 | u32 | i32 | i64",
                .unset = "the type in the .idx next to a .bin; u16 without an .idx"),
        FIELD(orient, U32, IMAGE | MASK, .print = PS_PRINT_PICTURE,
                .text = "1: rotate as the file's EXIF or XMP says"),
        FIELD(member, TEXT, ALL, .print = PS_PRINT_OWN, .text = "member that the field is read from",
                .unset = "the one that the name says"),
        FIELD(follow, TEXT, IMAGE | MASK | BOXES | NPY | JSON, .print = PS_PRINT_PICTURE,
                .text = "image field whose crop, flips and affine map this field shares; arrays: boxes field "
                        "whose dropped boxes this field drops, too",
                .unset = "masks and boxes: the first image field"),
        FIELD(views, U32, IMAGE, PLACING, .most = 64, .print = PS_PRINT_PICTURE,
                .text = "pictures made from one decoded image", .unset = "0: one, without a dimension"),
        FIELD(dct_scale, U32, IMAGE, PLACING, .need = PS_NEEDS_RESIZE, .print = PS_PRINT_PICTURE,
                .text = "1: decode large JPEGs at 1/2, 1/4 or 1/8 of their size"),
        FIELD(max_memory, U64, IMAGE | MASK, .print = PS_PRINT_PICTURE,
                .gone = "raise max_pixels; an image may need 8 bytes of memory per pixel"),
        FIELD(max_scans, U32, IMAGE, .print = PS_PRINT_PICTURE,
                .gone = "a progressive JPEG may have at most 100 scans; re-encode images with more"),
        FIELD(fill, U32, IMAGE | MASK, .need = PS_NEEDS_OUTSIDE, .most = 255, .print = PS_PRINT_PICTURE,
                .text = "level of pixels outside the image"),
        FIELD(vflip, F64, IMAGE, PLACING, .most = 1, .print = PS_PRINT_PICTURE,
                .text = "probability of a vertical flip"),
        FIELD(affine, F64, IMAGE, PLACING, .need = PS_NEEDS_MAP, .most = 1, .print = PS_PRINT_PICTURE,
                .text = "probability of an affine map"),
        FIELD(degrees, F64, IMAGE, PLACING, .need = PS_NEEDS_AFFINE, .most = 180, .print = PS_PRINT_PICTURE,
                .unit = "degrees", .text = "maximum rotation each way"),
        FIELD(translate_x, F64, IMAGE, PLACING, .need = PS_NEEDS_AFFINE, .most = 1, .print = PS_PRINT_PICTURE,
                .text = "maximum shift each way, as a share of the width"),
        FIELD(translate_y, F64, IMAGE, PLACING, .need = PS_NEEDS_AFFINE, .most = 1, .print = PS_PRINT_PICTURE,
                .text = "maximum shift each way, as a share of the height"),
        FIELD(zoom_min, F64, IMAGE, PLACING, .need = PS_NEEDS_AFFINE, .least = 0.01, .most = 100,
                .print = PS_PRINT_PICTURE, .text = "smallest zoom factor", .unset = "1"),
        FIELD(zoom_max, F64, IMAGE, PLACING, .need = PS_NEEDS_AFFINE, .least = 0.01, .most = 100,
                .print = PS_PRINT_PICTURE, .text = "largest zoom factor", .unset = "1"),
        FIELD(shear_x, F64, IMAGE, PLACING, .need = PS_NEEDS_AFFINE, .most = 80, .print = PS_PRINT_PICTURE,
                .unit = "degrees", .text = "maximum shear each way"),
        FIELD(shear_y, F64, IMAGE, PLACING, .need = PS_NEEDS_AFFINE, .most = 80, .print = PS_PRINT_PICTURE,
                .unit = "degrees", .text = "maximum shear each way"),
        FIELD(jitter, F64, IMAGE, .need = PS_NEEDS_COLOURS, .most = 1, .print = PS_PRINT_PICTURE,
                .text = "probability of a colour jitter"),
        FIELD(brightness, F64, IMAGE, .need = PS_NEEDS_JITTER, .most = 7, .print = PS_PRINT_PICTURE,
                .text = "x: a factor from 1 - x to 1 + x"),
        FIELD(contrast, F64, IMAGE, .need = PS_NEEDS_JITTER, .most = 7, .print = PS_PRINT_PICTURE,
                .text = "x: a factor from 1 - x to 1 + x"),
        FIELD(saturation, F64, IMAGE, .need = PS_NEEDS_JITTER, .most = 7, .print = PS_PRINT_PICTURE,
                .text = "x: a factor from 1 - x to 1 + x"),
        FIELD(hue, F64, IMAGE, .need = PS_NEEDS_JITTER, .most = 0.5, .print = PS_PRINT_PICTURE,
                .text = "maximum hue shift each way, as a share of the colour circle"),
        FIELD(gray, F64, IMAGE, .most = 1, .print = PS_PRINT_PICTURE,
                .text = "probability of conversion to gray"),
        FIELD(blur, F64, IMAGE, .most = 1, .print = PS_PRINT_PICTURE,
                .text = "probability of a Gaussian blur"),
        FIELD(blur_sigma_min, F64, IMAGE, .need = PS_NEEDS_BLUR, .least = 0.01, .most = 100,
                .print = PS_PRINT_PICTURE, .unit = "pixels", .text = "smallest sigma", .unset = "0.1"),
        FIELD(blur_sigma_max, F64, IMAGE, .need = PS_NEEDS_BLUR, .least = 0.01, .most = 100,
                .print = PS_PRINT_PICTURE, .unit = "pixels", .text = "largest sigma", .unset = "2"),
        FIELD(noise, F64, IMAGE, .need = PS_NEEDS_SIGMA, .most = 1, .print = PS_PRINT_PICTURE,
                .text = "probability of Gaussian noise"),
        FIELD(noise_sigma, F64, IMAGE, .need = PS_NEEDS_NOISE, .most = 255, .print = PS_PRINT_PICTURE,
                .unit = "levels", .text = "standard deviation of the noise"),
        FIELD(blur_size, U32, IMAGE, .need = PS_NEEDS_BLUR, .least = 1, .most = 255,
                .print = PS_PRINT_PICTURE, .text = "size of the blur kernel along each axis, odd",
                .unset = "a tenth of the width"),
        FIELD(box_format, U32, BOXES, .words = WORDS("xyxy", "xywh", "cxcywh"), .print = PS_PRINT_PICTURE,
                .text = "format of the boxes"),
        FIELD(box_shares, U32, BOXES, .print = PS_PRINT_PICTURE,
                .text = "1: coordinates are shares of the image's sides; 0: pixels"),
        FIELD(resize_width, U32, IMAGE, PLACING, .need = PS_NEEDS_CROP, .most = 16384,
                .print = PS_PRINT_LATER, .unit = "pixels", .text = "size before the crop",
                .unset = "0: see resize_shorter"),
        FIELD(resize_height, U32, IMAGE, PLACING, .need = PS_NEEDS_CROP, .most = 16384,
                .print = PS_PRINT_LATER, .unit = "pixels", .text = "size before the crop",
                .unset = "0: see resize_shorter"),
        FIELD(padding_x, U32, IMAGE, PLACING, .need = PS_NEEDS_RANDOM_CROP, .unit = "pixels",
                .print = PS_PRINT_LATER, .text = "padding on the left and on the right, less than the width"),
        FIELD(padding_y, U32, IMAGE, PLACING, .need = PS_NEEDS_RANDOM_CROP, .unit = "pixels",
                .print = PS_PRINT_LATER,
                .text = "padding at the top and at the bottom, less than the height"),
        FIELD(padding_mode, U32, IMAGE, PLACING, .need = PS_NEEDS_PADDED_CROP, .print = PS_PRINT_LATER,
                .words = WORDS("constant", "edge", "reflect", "symmetric"), .text = "content of the padding"),
        FIELD(jitter_order, U32, IMAGE, .need = PS_NEEDS_JITTER, .words = WORDS("fixed", "random"),
                .print = PS_PRINT_LATER, .text = "order of the steps of the jitter"),
        FIELD(blur_size_max, U32, IMAGE, .need = PS_NEEDS_BLUR, .least = 1, .most = 255,
                .print = PS_PRINT_LATER, .text = "largest blur_size; a random size is drawn",
                .unset = "blur_size"),
        FIELD(noise_sigma_max, F64, IMAGE, .need = PS_NEEDS_NOISE, .most = 255, .print = PS_PRINT_LATER,
                .unit = "levels", .text = "largest noise_sigma; a random value is drawn",
                .unset = "noise_sigma"),
        FIELD(erase, F64, IMAGE, .most = 1, .print = PS_PRINT_LATER,
                .text = "probability of erasing a rectangle"),
        FIELD(erase_scale_min, F64, IMAGE, .need = PS_NEEDS_ERASE, .most = 1, .print = PS_PRINT_LATER,
                .text = "smallest share of the picture that is erased", .unset = "0.02"),
        FIELD(erase_scale_max, F64, IMAGE, .need = PS_NEEDS_ERASE, .most = 1, .print = PS_PRINT_LATER,
                .text = "largest share of the picture that is erased", .unset = "0.33"),
        FIELD(erase_ratio_min, F64, IMAGE, .need = PS_NEEDS_ERASE, .least = 0.001, .most = 1000,
                .print = PS_PRINT_LATER, .text = "smallest height / width of the rectangle", .unset = "0.3"),
        FIELD(erase_ratio_max, F64, IMAGE, .need = PS_NEEDS_ERASE, .least = 0.001, .most = 1000,
                .print = PS_PRINT_LATER, .text = "largest height / width of the rectangle", .unset = "3.3"),
        FIELD(erase_fill, U32, IMAGE, .need = PS_NEEDS_ERASE, .words = WORDS("mean", "random", "levels"),
                .print = PS_PRINT_LATER, .text = "content of the erased rectangle"),
        FIELD(erase_levels, U32, IMAGE, .need = PS_NEEDS_LEVELS, .most = 0xffffff, .print = PS_PRINT_LATER,
                .text = "0xRRGGBB"),
        FIELD(groups, TEXT, IMAGE, .print = PS_PRINT_LATER,
                .text = "operations that share a probability: \"one:0.5=blur,noise\"",
                .unset = "each operation has its own"),
        FIELD(rounding, U32, NPY, .words = WORDS("exact", "nearest"), .print = PS_PRINT_IF_SET,
                .text = "numbers that a float dtype cannot hold exactly: a bad sample, or rounded"),
        FIELD(channels, U32, IMAGE, .words = WORDS("rgb", "rgba", "gray"),
                .text = "channels of the picture; only rgb allows affine, jitter, gray, blur, noise and "
                        "erase"),
        FIELD(hidden, U32, ALL, .text = "1: only for a transform or map, not part of batches"),
        FIELD(pack, U32, TOKENS, .words = WORDS("none", "concat", "fit", "whole"),
                .text = "how documents of token files become rows: windows; cut; placed where they fit; "
                        "padded"),
        FIELD(parts, TEXT, TOKENS, .need = PS_NEEDS_PACK,
                .text = "further tensors of packed rows: \"positions,segments,mask,cu,document\"",
                .unset = ""),
        FIELD(long_documents, U32, TOKENS, .need = PS_NEEDS_WHOLE,
                .words = WORDS("unset", "split", "truncate", "drop"),
                .text = "with pack whole: what happens to a document that is longer than a row"),
        FIELD(cu_pad, U32, TOKENS, .need = PS_NEEDS_CU, .unit = "parts",
                .text = "number of parts in each batch's cu", .unset = "0: as many as there are"),
        FIELD(end_token, I64, TOKENS, .need = PS_NEEDS_PACK, .initial = -1,
                .text = "token at the end of each document, in files without an index", .unset = "-1: none"),
        FIELD(vocab, U64, TOKENS, .need = PS_NEEDS_PACK, .unit = "tokens",
                .text = "a row with a token of this or more is a bad sample", .unset = "0: not checked"),
        FIELD(truncated, U32, IMAGE, .words = WORDS("refuse", "allow"),
                .text = "image files that lack their end"),
        FIELD(min_area, F64, BOXES, .unit = "square pixels",
                .text = "boxes with a smaller area in the picture are dropped", .unset = "0: none"),
        FIELD(min_visible, F64, BOXES, .most = 1,
                .text = "boxes with a smaller share of their area in the picture are dropped",
                .unset = "0: none"),
};
const size_t ps_n_field_options = ARRAY_LEN(ps_field_options);

/* Use of the tables ------------------------------------------------------------------------------------- */

static const struct ps_option *find(
        const struct ps_option *options, size_t n_options, const char *name, size_t n)
{
	for (size_t i = 0; i < n_options; i++)
		if (strlen(options[i].name) == n && memcmp(options[i].name, name, n) == 0)
			return &options[i];
	return NULL;
}

const struct ps_option *ps_loader_option(const char *name, size_t n)
{
	return find(ps_loader_options, ps_n_loader_options, name, n);
}

const struct ps_option *ps_field_option(const char *name, size_t n)
{
	return find(ps_field_options, ps_n_field_options, name, n);
}

void ps_option_init(const struct ps_option *o, void *base)
{
	void *to = (char *)base + o->at;

	switch (o->type) {
	case PS_OPTION_U32:
		*(uint32_t *)to = (uint32_t)o->initial;
		break;
	case PS_OPTION_U64:
		*(uint64_t *)to = (uint64_t)o->initial;
		break;
	case PS_OPTION_I64:
		*(int64_t *)to = (int64_t)o->initial;
		break;
	case PS_OPTION_F64:
		*(double *)to = o->initial;
		break;
	default:
		break;
	}
}

uint64_t ps_option_number(const struct ps_option *o, const void *base)
{
	const void *from = (const char *)base + o->at;

	return o->nbytes == sizeof(uint32_t) ? *(const uint32_t *)from : *(const uint64_t *)from;
}

uint64_t ps_option_most(const struct ps_option *o)
{
	uint64_t n = 0;

	if (o->most > 0)
		return (uint64_t)o->most;
	while (o->words && o->words[n])
		n++;
	return n > 0 ? n - 1 : o->nbytes == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX;
}

const char *ps_option_word(const struct ps_option *o, uint64_t number)
{
	for (uint64_t i = 0; o->words && o->words[i]; i++)
		if (i == number)
			return o->words[i];
	return NULL;
}

static void words_join(const struct ps_option *o, const char *between, char *buf, size_t size)
{
	for (size_t i = 0, n = 0; o->words[i] && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i > 0 ? between : "", o->words[i]);
}

void ps_option_range(const struct ps_option *o, char *buf, size_t size)
{
	const char *unit = o->unit ? o->unit : "", *blank = o->unit ? " " : "";
	int exponent;

	buf[0] = 0;
	if (o->words && !strstr(o->text, " | "))
		words_join(o, " | ", buf, size);
	else if (o->words || (o->type == PS_OPTION_U32 && o->most == 1))
		return; /* the text lists the values */
	else if (o->most > 0 && frexp(o->most, &exponent) == 0.5 && exponent > 40)
		snprintf(buf, size, "%.15g to 2^%d%s%s", o->least, exponent - 1, blank, unit);
	else if (o->most > 0)
		snprintf(buf, size, "%.15g to %.15g%s%s", o->least, o->most, blank, unit);
	else if (o->least > 0)
		snprintf(buf, size, "at least %.15g%s%s", o->least, blank, unit);
	else
		snprintf(buf, size, "%s", unit);
}

static void describe(const struct ps_option *o, const char *range, char *buf, size_t size)
{
	char number[32];
	const char *unset = o->unset ? o->unset : o->words ? o->words[(size_t)o->initial] : number;

	snprintf(number, sizeof(number), "%.15g", o->initial);
	snprintf(buf, size, "%s%s%s%s%s%s", o->text, *range ? o->words ? ": " : ", " : "", range,
	        *unset ? " (" : "", unset, *unset ? ")" : "");
}

void ps_option_describe(const struct ps_option *o, char *buf, size_t size)
{
	char range[128];

	ps_option_range(o, range, sizeof(range));
	describe(o, range, buf, size);
}

void ps_option_help(const struct ps_option *o, char *buf, size_t size)
{
	describe(o, "", buf, size);
}
