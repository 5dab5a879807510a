"""Generated from the table of options by penstock.keywords, for type checkers: never imported."""
import os
from typing import Any, Iterable, Literal, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from .loader import Budget

class LoaderOptions(TypedDict, total=False):
    balance: Optional[str]
    """index column whose values are drawn equally often"""
    bucket: Optional[int]
    """with order window: number of runs of similar length in each window, 0 to 256 (0: none)"""
    budget: Optional[Budget]
    """memory limit that loaders share (none)"""
    cutmix_alpha: Optional[float]
    """alpha of CutMix's beta distribution, 0.01 to 100 (0: off)"""
    cutmix_share: float
    """with both alphas: share of mixed batches that use CutMix, 0 to 1 (0.5)"""
    depth: Optional[int]
    """batches in memory, 2 to 64 (auto: 4, or fewer if batches are large)"""
    device: Optional[str]
    """where batches are stored (cpu)"""
    device_pixels: Optional[Literal["auto", "off"]]
    """whether the device or the CPU finishes images: auto | off (auto: the device, if it can)"""
    draws: Optional[int]
    """samples that each pass draws by weight, 0 to 2^40 (0: decided by the weights)"""
    end: Literal["uneven", "drop_last", "pad", "split", "gather"]
    """how an epoch ends: uneven | drop_last | pad | split | gather (split)"""
    epoch: int
    """first epoch (0)"""
    epochs: Optional[int]
    """number of epochs in the run (0: no end)"""
    filter: Optional[str]
    """condition on index columns that selects samples: 'label == 3 && h >= 256' (all)"""
    global_batch: Optional[int]
    """samples per batch over all ranks (batch times world)"""
    gpu_decode: Union[float, Literal["auto"]]
    """with device cuda: share of JPEGs that the GPU decodes, 0 to 1 (0)"""
    homes: Optional[int]
    """groups of shards that keep their lanes in every epoch, so that caches stay warm, 1 to 16384 (1: none)"""
    index: Literal["take", "make"]
    """what to do about shards without an index: take | make (take)"""
    index_dir: Optional[Union[str, os.PathLike[str]]]
    """folder of the shards' indexes (index --dir); by default next to the shards"""
    job: Optional[str]
    """name of the run for Penstock mounts (loader)"""
    lanes: Optional[int]
    """sequences of shards that are read in parallel, 0 to 16384 (chosen from the global batch and the number of shards)"""
    max_bad: int
    """with on_error skip: more bad samples than this in a row end the run (100)"""
    memory_budget: Optional[Union[int, str]]
    """memory for batches, read buffers and the shuffle window, bytes (512M)"""
    mix: Optional[Union[Sequence[float], Mapping[str, float], Sequence[Tuple[Any, ...]]]]
    """weights of the datasets, 0 or more"""
    mix_end: Literal["first", "longest"]
    """which dataset ends the epoch of a mix, the first that runs out or the longest: first | longest (first)"""
    mix_probability: float
    """probability that a batch is mixed, 0 to 1 (1)"""
    mixup_alpha: Optional[float]
    """alpha of MixUp's beta distribution, 0.01 to 100 (0: off)"""
    on_error: Literal["fail", "skip"]
    """what to do about a bad sample or a missing shard: fail | skip (fail)"""
    order: Union[Literal["none", "shards", "window", "permutation"], Iterable[int], Iterable[Sequence[int]]]
    """what is shuffled: none | shards | window | permutation (window)"""
    permute_remote: int
    """1: allow access by number to shards that are not in their mount's cache yet (0)"""
    profile: int
    """1: collect a profile of the data (0)"""
    ranks_per_node: Optional[int]
    """ranks per machine; must divide world, at least 1 (1)"""
    readers: Optional[int]
    """reading threads, 1 to 64 (auto: as many as threads, within 2 to 8; 8 on a Penstock mount)"""
    repeat: Optional[int]
    """passes over the data per epoch, 0 to 2^40 (0: one, or as many as steps needs)"""
    replacement: int
    """1: a weight is how often a sample is drawn on average; 0: its probability (0)"""
    seed: int
    """seed of all random choices (0)"""
    shuffle_window: Optional[int]
    """samples in the shuffle window, 1 to 16777216 (4096, or 16 global batches if that is more)"""
    skip: int
    """samples to skip at the beginning of each epoch, 0 to 2^60 (0)"""
    steps: Optional[int]
    """batches per epoch, 0 to 2^40 (0: as many as the samples fill)"""
    take: Optional[int]
    """maximum number of samples per epoch, after skip, 0 to 2^60 (0: all)"""
    threads: Optional[int]
    """decoding threads, 1 to 1024 (auto: one per CPU that the process may use, plus one with transform_unit or a map)"""
    token_stride: Optional[int]
    """distance between the starts of consecutive windows, tokens (0: the length of the field)"""
    weights: Optional[Union[str, Iterable[float]]]
    """index column with the weights of the samples (each sample once)"""

class ImageOptions(TypedDict, total=False):
    affine: float
    """probability of an affine map, 0 to 1 (0)"""
    blur: float
    """probability of a Gaussian blur, 0 to 1 (0)"""
    blur_sigma: Union[None, float, Tuple[float, float]]
    """smallest sigma, 0.01 to 100 pixels (0.1); largest sigma, 0.01 to 100 pixels (2)"""
    blur_size: Optional[Union[int, Tuple[int, int]]]
    """size of the blur kernel along each axis, odd, 1 to 255 (a tenth of the width)"""
    brightness: float
    """x: a factor from 1 - x to 1 + x, 0 to 7 (0)"""
    channels: Literal["rgb", "rgba", "gray"]
    """channels of the picture; only rgb allows affine, jitter, gray, blur, noise and erase: rgb | rgba | gray (rgb)"""
    contrast: float
    """x: a factor from 1 - x to 1 + x, 0 to 7 (0)"""
    dct_scale: int
    """1: decode large JPEGs at 1/2, 1/4 or 1/8 of their size (0)"""
    degrees: float
    """maximum rotation each way, 0 to 180 degrees (0)"""
    erase: float
    """probability of erasing a rectangle, 0 to 1 (0)"""
    erase_fill: Union[Literal["mean", "random"], int, Tuple[int, int, int]]
    """content of the erased rectangle: mean | random | levels (mean)"""
    erase_ratio: Union[None, float, Tuple[float, float]]
    """smallest height / width of the rectangle, 0.001 to 1000 (0.3); largest height / width of the rectangle, 0.001 to 1000 (3.3)"""
    erase_scale: Union[None, float, Tuple[float, float]]
    """smallest share of the picture that is erased, 0 to 1 (0.02); largest share of the picture that is erased, 0 to 1 (0.33)"""
    fill: int
    """level of pixels outside the image, 0 to 255 (0)"""
    follow: Optional[str]
    """image field whose crop, flips and affine map this field shares; arrays: boxes field whose dropped boxes this field drops, too (masks and boxes: the first image field)"""
    gray: float
    """probability of conversion to gray, 0 to 1 (0)"""
    groups: Optional[Union[str, Sequence[str]]]
    """operations that share a probability: 'one:0.5=blur,noise' (each operation has its own)"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    hue: float
    """maximum hue shift each way, as a share of the colour circle, 0 to 0.5 (0)"""
    jitter: float
    """probability of a colour jitter, 0 to 1 (0)"""
    jitter_order: Literal["fixed", "random"]
    """order of the steps of the jitter: fixed | random (fixed)"""
    max_pixels: Optional[int]
    """larger images are bad samples, pixels (2^27)"""
    noise: float
    """probability of Gaussian noise, 0 to 1 (0)"""
    noise_sigma: Union[float, Tuple[float, float]]
    """standard deviation of the noise, 0 to 255 levels (0)"""
    optional: int
    """1: a sample may lack the field (0)"""
    orient: int
    """1: rotate as the file's EXIF or XMP says (0)"""
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"]
    """content of the padding: constant | edge | reflect | symmetric (constant)"""
    saturation: float
    """x: a factor from 1 - x to 1 + x, 0 to 7 (0)"""
    shear_x: float
    """maximum shear each way, 0 to 80 degrees (0)"""
    shear_y: float
    """maximum shear each way, 0 to 80 degrees (0)"""
    translate_x: float
    """maximum shift each way, as a share of the width, 0 to 1 (0)"""
    translate_y: float
    """maximum shift each way, as a share of the height, 0 to 1 (0)"""
    truncated: Literal["refuse", "allow"]
    """image files that lack their end: refuse | allow (refuse)"""
    vflip: float
    """probability of a vertical flip, 0 to 1 (0)"""
    views: Optional[int]
    """pictures made from one decoded image, 0 to 64 (0: one, without a dimension)"""
    zoom: Union[None, float, Tuple[float, float]]
    """smallest zoom factor, 0.01 to 100 (1); largest zoom factor, 0.01 to 100 (1)"""

class MaskOptions(TypedDict, total=False):
    fill: int
    """level of pixels outside the image, 0 to 255 (0)"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_pixels: Optional[int]
    """larger images are bad samples, pixels (2^27)"""
    missing_value: int
    """value of all elements of a row whose sample lacks the field (-1)"""
    optional: int
    """1: a sample may lack the field (0)"""
    orient: int
    """1: rotate as the file's EXIF or XMP says (0)"""

class BoxesOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    box_shares: int
    """1: coordinates are shares of the image's sides; 0: pixels (0)"""
    dtype: Optional[Literal["u8", "f32", "f16", "bf16", "i32", "i64", "f64", "u16", "u32", "u64", "i8", "i16", "bool"]]
    """type of the elements: u8 | f32 | f16 | bf16 | i32 | i64 | f64 | u16 | u32 | u64 | i8 | i16 | bool (f32; integers and labels: i64; JSON texts: u8)"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_bytes: Optional[int]
    """maximum size of a ragged row, bytes (0: no limit)"""
    min_area: Optional[float]
    """boxes with a smaller area in the picture are dropped, square pixels (0: none)"""
    min_visible: Optional[float]
    """boxes with a smaller share of their area in the picture are dropped, 0 to 1 (0: none)"""
    missing_value: int
    """value of all elements of a row whose sample lacks the field (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """pad the longest row to a multiple of this (1)"""
    pad_value: int
    """value of padding elements (0)"""
    shape: Optional[Sequence[int]]
    """shape of a row, at most 7 dimensions; a leading 0: as many items as the sample has"""

class IntOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_bytes: Optional[int]
    """maximum size of a ragged row, bytes (0: no limit)"""
    pad_to: Optional[int]
    """pad rows to this length, items (0: rows are ragged)"""

class FloatOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_bytes: Optional[int]
    """maximum size of a ragged row, bytes (0: no limit)"""
    pad_to: Optional[int]
    """pad rows to this length, items (0: rows are ragged)"""

class BytesOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_bytes: Optional[int]
    """maximum size of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row whose sample lacks the field (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """pad the longest row to a multiple of this (1)"""
    pad_value: int
    """value of padding elements (0)"""

class TextOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_bytes: Optional[int]
    """maximum size of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row whose sample lacks the field (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """pad the longest row to a multiple of this (1)"""
    pad_to: Optional[int]
    """pad rows to this length, items (0: rows are ragged)"""
    pad_value: int
    """value of padding elements (0)"""

class ArrayOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    follow: Optional[str]
    """image field whose crop, flips and affine map this field shares; arrays: boxes field whose dropped boxes this field drops, too (masks and boxes: the first image field)"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_bytes: Optional[int]
    """maximum size of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row whose sample lacks the field (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """pad the longest row to a multiple of this (1)"""
    pad_value: int
    """value of padding elements (0)"""
    rounding: Literal["exact", "nearest"]
    """numbers that a float dtype cannot hold exactly: a bad sample, or rounded: exact | nearest (exact)"""

class JsonOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    follow: Optional[str]
    """image field whose crop, flips and affine map this field shares; arrays: boxes field whose dropped boxes this field drops, too (masks and boxes: the first image field)"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_bytes: Optional[int]
    """maximum size of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row whose sample lacks the field (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """pad the longest row to a multiple of this (1)"""
    pad_value: int
    """value of padding elements (0)"""

class TokensOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    max_bytes: Optional[int]
    """maximum size of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row whose sample lacks the field (-1)"""
    optional: int
    """1: a sample may lack the field (0)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """pad the longest row to a multiple of this (1)"""
    pad_to: Optional[int]
    """pad rows to this length, items (0: rows are ragged)"""
    pad_value: int
    """value of padding elements (0)"""

class OutputOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """ragged field whose items these numbers index; in a batch they index the items of all rows"""
    hidden: int
    """1: only for a transform or map, not part of batches (0)"""
    missing_value: int
    """value of all elements of a row whose sample lacks the field (-1)"""
    optional: int
    """1: a sample may lack the field (0)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """pad the longest row to a multiple of this (1)"""
    pad_value: int
    """value of padding elements (0)"""
