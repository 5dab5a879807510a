"""Generated from the table of options by penstock.keywords, for type checkers: never imported."""
import os
from typing import Iterable, Literal, Optional, Sequence, Tuple, TypedDict, Union

from .loader import Budget

class LoaderOptions(TypedDict, total=False):
    balance: Optional[str]
    """a column whose values come equally often"""
    bucket: Optional[int]
    """order window: runs of similar length that a window is cut into, 0 to 256 (0: none)"""
    budget: Optional[Budget]
    """a limit of memory that loaders share (none)"""
    cutmix_alpha: Optional[float]
    """alpha of CutMix's weights, 0.01 to 100 (0: off)"""
    cutmix_share: float
    """with both alphas: share of mixed batches that take CutMix, 0 to 1 (0.5)"""
    depth: Optional[int]
    """batches in memory, 2 to 64 (auto: 4, fewer if they are large)"""
    device: Optional[str]
    """where batches are stored (cpu)"""
    device_pixels: Optional[Literal["auto", "off"]]
    """finish images on the device, or on the CPU: auto | off (auto: the device, if it can)"""
    draws: Optional[int]
    """samples that a pass of an epoch draws by weight, 0 to 2^40 (0: as weights say)"""
    end: Literal["uneven", "drop_last", "pad", "split", "gather"]
    """how an epoch ends: uneven | drop_last | pad | split | gather (split)"""
    epoch: int
    """the first epoch (0)"""
    epochs: Optional[int]
    """epochs until the run ends (0: no end)"""
    filter: Optional[str]
    """which samples come, by columns of the indexes: 'label == 3 && h >= 256' (all)"""
    global_batch: Optional[int]
    """samples of a batch over all ranks (batch times world)"""
    gpu_decode: Union[float, Literal["auto"]]
    """device cuda: share of JPEGs that the GPU decodes, 0 to 1 (0)"""
    homes: Optional[int]
    """groups of shards that keep their lanes in every epoch, for caches that stay warm, 1 to 16384 (1: none)"""
    index: Literal["take", "make"]
    """what is done about shards without an index: take | make (take)"""
    index_dir: Optional[Union[str, os.PathLike[str]]]
    """folder of the shards' indexes (index --dir); else beside the shards"""
    job: Optional[str]
    """the run's name for penstock mounts (loader)"""
    lanes: Optional[int]
    """sequences of shards read side by side, 0 to 16384 (by the global batch and the shards)"""
    max_bad: int
    """skip: more bad samples than this in a row end the run (100)"""
    memory_budget: Optional[Union[int, str]]
    """memory of batches, read buffers and shuffle window, bytes (512M)"""
    mix: Optional[Sequence[float]]
    """weights, above 0, one for each dataset"""
    mix_end: Literal["first", "longest"]
    """the dataset that a mix ends with: the first that is used up, or the longest: first | longest (first)"""
    mix_probability: float
    """probability that a batch is mixed, 0 to 1 (1)"""
    mixup_alpha: Optional[float]
    """alpha of MixUp's weights, 0.01 to 100 (0: off)"""
    on_error: Literal["fail", "skip"]
    """what happens at a bad sample or a missing shard: fail | skip (fail)"""
    order: Union[Literal["none", "shards", "window", "permutation"], Iterable[int], Iterable[Sequence[int]]]
    """what is shuffled: none | shards | window | permutation (window)"""
    permute_remote: int
    """1: reads samples by number also from shards that are not in their mount's cache yet (0)"""
    profile: int
    """1: samples are counted for a profile (0)"""
    ranks_per_node: Optional[int]
    """ranks on one machine; must divide the world, at least 1 (1)"""
    readers: Optional[int]
    """reading threads, 1 to 64 (auto: as many as threads, but 2 to 8; 8 on a mount of penstock)"""
    repeat: Optional[int]
    """passes of an epoch, 0 to 2^40 (0: one, or as many as steps take)"""
    replacement: int
    """1: weights are how often a sample comes on average; 0: its probability (0)"""
    seed: int
    """seed of all random choices (0)"""
    shuffle_window: Optional[int]
    """samples that are shuffled with each other, 1 to 16777216 (4096, or 16 global batches if more)"""
    skip: int
    """samples left out at an epoch's beginning, 0 to 2^60 (0)"""
    source: Optional[Literal["auto", "tar", "lines", "tokens"]]
    """what the shards are: auto | tar | lines | tokens (auto: by their names)"""
    steps: Optional[int]
    """batches of an epoch, 0 to 2^40 (0: as many as the samples give)"""
    take: Optional[int]
    """most samples of an epoch, after skip, 0 to 2^60 (0: all)"""
    threads: Optional[int]
    """decoding threads, 1 to 1024 (auto: the CPUs that may be used, and one more with transform_unit or a map)"""
    token_stride: Optional[int]
    """distance from one window's beginning to the next one's, tokens (0: the field's length)"""
    weights: Optional[Union[str, Iterable[float]]]
    """a column: how often a sample comes (once)"""

class ImageOptions(TypedDict, total=False):
    affine: float
    """probability of an affine map, 0 to 1 (0)"""
    blur: float
    """probability of a Gaussian blur, 0 to 1 (0)"""
    blur_sigma: Union[None, float, Tuple[float, float]]
    """least sigma, 0.01 to 100 pixels (0.1); largest sigma, 0.01 to 100 pixels (2)"""
    blur_size: Optional[Union[int, Tuple[int, int]]]
    """weights of the blur along each axis, odd, 1 to 255 (a tenth of the width)"""
    brightness: float
    """x: a factor from 1 - x to 1 + x, 0 to 7 (0)"""
    channels: Literal["rgb", "rgba", "gray"]
    """channels of the picture; those other than rgb take no affine, jitter, gray, blur, noise and erase: rgb | rgba | gray (rgb)"""
    contrast: float
    """x: a factor from 1 - x to 1 + x, 0 to 7 (0)"""
    dct_scale: int
    """1: large JPEGs are decoded at 1/2, 1/4 or 1/8 (0)"""
    degrees: float
    """turned by up to this each way, 0 to 180 degrees (0)"""
    erase: float
    """probability of a rectangle that is written over, 0 to 1 (0)"""
    erase_fill: Union[Literal["mean", "random"], int, Tuple[int, int, int]]
    """what the rectangle is filled with: mean | random | levels (mean)"""
    erase_ratio: Union[None, float, Tuple[float, float]]
    """the rectangle's least height / width, 0.001 to 1000 (0.3); the rectangle's largest height / width, 0.001 to 1000 (3.3)"""
    erase_scale: Union[None, float, Tuple[float, float]]
    """the rectangle's least share of the picture, 0 to 1 (0.02); the rectangle's largest share of the picture, 0 to 1 (0.33)"""
    fill: int
    """level of pixels outside the image, 0 to 255 (0)"""
    follow: Optional[str]
    """the image field whose crop, flips and map it shares (masks and boxes: the first)"""
    gray: float
    """probability of losing colour, 0 to 1 (0)"""
    groups: Optional[Union[str, Sequence[str]]]
    """operations under one probability: 'one:0.5=blur,noise' (each on its own)"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    hue: float
    """turned by up to this share of the circle each way, 0 to 0.5 (0)"""
    jitter: float
    """probability of a colour jitter, 0 to 1 (0)"""
    jitter_order: Literal["fixed", "random"]
    """order of the jitter's steps: fixed | random (fixed)"""
    max_pixels: Optional[int]
    """a larger image is a bad sample, pixels (2^27)"""
    noise: float
    """probability of Gaussian noise, 0 to 1 (0)"""
    noise_sigma: Union[float, Tuple[float, float]]
    """standard deviation of the noise, 0 to 255 levels (0)"""
    optional: int
    """1: a sample may lack the field (0)"""
    orient: int
    """1: turned as EXIF says (0)"""
    padding_mode: Literal["constant", "edge", "reflect", "symmetric"]
    """what padding shows: constant | edge | reflect | symmetric (constant)"""
    saturation: float
    """x: a factor from 1 - x to 1 + x, 0 to 7 (0)"""
    shear_x: float
    """sheared by up to this each way, 0 to 80 degrees (0)"""
    shear_y: float
    """sheared by up to this each way, 0 to 80 degrees (0)"""
    translate_x: float
    """moved by up to this share of the width each way, 0 to 1 (0)"""
    translate_y: float
    """moved by up to this share of the height each way, 0 to 1 (0)"""
    vflip: float
    """probability of a vertical flip, 0 to 1 (0)"""
    views: Optional[int]
    """pictures made of one decode, 0 to 64 (0: one, without a dimension)"""
    zoom: Union[None, float, Tuple[float, float]]
    """least factor of enlarging, 0.01 to 100 (1); largest factor of enlarging, 0.01 to 100 (1)"""

class MaskOptions(TypedDict, total=False):
    fill: int
    """level of pixels outside the image, 0 to 255 (0)"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_pixels: Optional[int]
    """a larger image is a bad sample, pixels (2^27)"""
    missing_value: int
    """value of all elements of a row without a value (-1)"""
    optional: int
    """1: a sample may lack the field (0)"""
    orient: int
    """1: turned as EXIF says (0)"""

class BoxesOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    box_shares: int
    """1: given as shares of the image's sides; 0: in pixels (0)"""
    dtype: Optional[Literal["u8", "f32", "f16", "bf16", "i32", "i64", "f64", "u16", "u32", "u64", "i8", "i16", "bool"]]
    """type of the elements: u8 | f32 | f16 | bf16 | i32 | i64 | f64 | u16 | u32 | u64 | i8 | i16 | bool (f32; integers and labels: i64; JSON texts: u8)"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_bytes: Optional[int]
    """most bytes of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row without a value (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """the longest row is padded to a multiple of this (1)"""
    pad_value: int
    """value of the elements of padding (0)"""
    shape: Optional[Sequence[int]]
    """shape of a row, at most 7 dimensions; first 0: as many items as a sample has"""

class IntOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_bytes: Optional[int]
    """most bytes of a ragged row, bytes (0: no limit)"""
    pad_to: Optional[int]
    """rows are padded to this length, items (0: they are ragged)"""

class FloatOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_bytes: Optional[int]
    """most bytes of a ragged row, bytes (0: no limit)"""
    pad_to: Optional[int]
    """rows are padded to this length, items (0: they are ragged)"""

class BytesOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_bytes: Optional[int]
    """most bytes of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row without a value (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """the longest row is padded to a multiple of this (1)"""
    pad_value: int
    """value of the elements of padding (0)"""

class TextOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_bytes: Optional[int]
    """most bytes of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row without a value (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """the longest row is padded to a multiple of this (1)"""
    pad_to: Optional[int]
    """rows are padded to this length, items (0: they are ragged)"""
    pad_value: int
    """value of the elements of padding (0)"""

class ArrayOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_bytes: Optional[int]
    """most bytes of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row without a value (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """the longest row is padded to a multiple of this (1)"""
    pad_value: int
    """value of the elements of padding (0)"""
    rounding: Literal["exact", "nearest"]
    """what happens to numbers that a float dtype cannot hold: a bad sample, or rounding: exact | nearest (exact)"""

class JsonOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_bytes: Optional[int]
    """most bytes of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row without a value (-1)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """the longest row is padded to a multiple of this (1)"""
    pad_value: int
    """value of the elements of padding (0)"""

class TokensOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    max_bytes: Optional[int]
    """most bytes of a ragged row, bytes (0: no limit)"""
    missing_value: int
    """value of all elements of a row without a value (-1)"""
    optional: int
    """1: a sample may lack the field (0)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """the longest row is padded to a multiple of this (1)"""
    pad_to: Optional[int]
    """rows are padded to this length, items (0: they are ragged)"""
    pad_value: int
    """value of the elements of padding (0)"""

class OutputOptions(TypedDict, total=False):
    add_offset_of: Optional[str]
    """a ragged field whose items the numbers index; in a batch, those of all rows"""
    hidden: int
    """1: only a transform or map gets it; not part of batches (0)"""
    missing_value: int
    """value of all elements of a row without a value (-1)"""
    optional: int
    """1: a sample may lack the field (0)"""
    overflow: Literal["error", "bad", "truncate"]
    """what happens to a longer row: error | bad | truncate (error)"""
    pad_multiple: Optional[int]
    """the longest row is padded to a multiple of this (1)"""
    pad_value: int
    """value of the elements of padding (0)"""
