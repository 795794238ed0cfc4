// The geometry of pooling windows, and how the work of a pooling is cut.
#pragma once

#include <array>

#include "device/engine/kernels/operand.h"

namespace vpod::engine {

// Windows in three spatial dimensions; those that are missing have size 1.
struct Windows {
  using Point = std::array<int64_t, 3>;
  // Places along a dimension, or in all, in ascending order.
  struct Places {
    int64_t first = 0, step = 1, count = 0;
  };
  using Box = std::array<Places, 3>;

  size_t images = 1, channels = 1;
  Point image{1, 1, 1}, result{1, 1, 1};
  // Windows slide, and have the following attributes, or they divide the image.
  bool slide = false;
  Point kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, before{}, after{};
  Point inverse{};  // of stride / divisor modulo dilation / divisor, their greatest common one

  Windows(const program::TensorType& image_type, const program::TensorType& result_type,
          const Instruction& instruction);

  size_t image_pixels() const { return static_cast<size_t>(Size(image)); }
  size_t result_pixels() const { return static_cast<size_t>(Size(result)); }

  // Along dimension `i`: the pixels of the image in a window, and the windows that touch a pixel.
  Places PixelsAlong(size_t i, int64_t window) const;
  Places WindowsAlong(size_t i, int64_t pixel) const;
  // The most that WindowsAlong gives.
  int64_t MostWindows(size_t i) const;
  // The divisor of a window's sum: its elements in the image, and those in the padding if they
  // count.
  float Divisor(const Point& window, bool count_padding) const;

  static int64_t Size(const Point& sizes) { return sizes[0] * sizes[1] * sizes[2]; }
  static int64_t Count(const Box& box) { return box[0].count * box[1].count * box[2].count; }
  static int64_t Index(const Point& sizes, const Point& point) {
    return (point[0] * sizes[1] + point[1]) * sizes[2] + point[2];
  }
  static Point At(const Point& sizes, int64_t index) {
    return {index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]};
  }
  // To the next point in row-major order; returns the first dimension along which it moved, or
  // none and goes back to the first point.
  static constexpr size_t kNone = 3;
  static size_t Advance(const Point& sizes, Point& point) {
    for (size_t axis = 3; axis-- > 0;) {
      if (++point[axis] < sizes[axis]) return axis;
      point[axis] = 0;
    }
    return kNone;
  }
  // Calls `visit(place)` for places [begin, end) of a box, in row-major order.
  template <class Visit>
  static void ForPlaces(const Box& box, int64_t begin, int64_t end, const Visit& visit) {
    end = std::min(end, Count(box));
    if (begin >= end) return;
    const Point counts{box[0].count, box[1].count, box[2].count};
    Point index{};
    if (begin > 0) index = At(counts, begin);
    for (int64_t i = begin; i < end; ++i) {
      Point place{};
      for (size_t axis = 0; axis < 3; ++axis)
        place[axis] = box[axis].first + index[axis] * box[axis].step;
      visit(place);
      Advance(counts, index);
    }
  }
};

// The points that are shared out: results, each of which reads pixels of the image, or for a
// gradient pixels of the image, each of which reads results.
enum class PoolBy { kResults, kImage };

// How the work of a pooling is cut: by points of what is written, and by channels. If a point has
// more terms than fit into a chunk, the next round goes on.
struct PoolCut {
  Windows windows;
  PoolBy by;
  Chunking points, channels;
  int64_t terms_of_round = 0;
  size_t rounds = 1;

  PoolCut(const Windows& of, PoolBy cut_by);

  size_t chunks() const { return points.chunks() * channels.chunks(); }
  double operations() const {
    return static_cast<double>(points.per_chunk * channels.per_chunk) *
           static_cast<double>(terms_of_round);
  }
  const Windows::Point& written() const {
    return by == PoolBy::kResults ? windows.result : windows.image;
  }
  const Windows::Point& read() const {
    return by == PoolBy::kResults ? windows.image : windows.result;
  }
  // The places along dimension `i` that a point reads.
  Windows::Places Along(size_t i, int64_t point) const {
    return by == PoolBy::kResults ? windows.PixelsAlong(i, point) : windows.WindowsAlong(i, point);
  }

  // Points of all images, numbered on: what the points of a chunk read lies in [begin, end).
  struct Range {
    size_t begin, end;
  };
  Range ReadBy(size_t of_points) const;

  // How many windows, from `window` on, have the same pixels along the last dimension but for the
  // stride from one to the next: those that lie in the image, or the one.
  int64_t LikeWindow(int64_t window) const {
    const int64_t top = window * windows.stride[2] - windows.before[2],
                  room = windows.image[2] - windows.kernel[2] - top;
    const bool lies_inside = windows.slide && windows.dilation[2] == 1 && top >= 0 && room >= 0;
    return lies_inside ? std::min(room / windows.stride[2] + 1, windows.result[2] - window) : 1;
  }

  // A point of a chunk, some of its channels, and the terms of a round.
  struct Item {
    size_t image;
    Windows::Point point;
    Windows::Box box;                  // what it reads
    size_t element, first_channel, n;  // element: the first channel's
    int64_t begin, end;                // terms
    bool is_first, is_last;            // round
    size_t left;                       // points of the chunk, from this one on
    size_t taken;                      // points of the line; set by what takes more than this one
  };
  template <class Visit>
  void ForItems(size_t numbered, const Visit& visit) const {
    const size_t round = numbered / chunks(), chunk = numbered % chunks();
    const size_t of_points = chunk / channels.chunks(), block = chunk % channels.chunks();
    const auto per_image = static_cast<size_t>(Windows::Size(written()));
    const size_t number = points.begin(of_points);
    Item item{.image = number / per_image,
              .point = Windows::At(written(), static_cast<int64_t>(number % per_image)),
              .box = {},
              .element = number * channels.items + channels.begin(block),
              .first_channel = channels.begin(block),
              .n = channels.size(block),
              .begin = static_cast<int64_t>(round) * terms_of_round,
              .end = static_cast<int64_t>(round + 1) * terms_of_round,
              .is_first = round == 0,
              .is_last = round + 1 == rounds,
              .left = points.size(of_points)};
    size_t moved = 0;
    while (item.left > 0) {
      for (; moved < 3; ++moved) item.box[moved] = Along(moved, item.point[moved]);
      item.taken = 1;
      visit(item);
      item.left -= item.taken;
      item.element += item.taken * channels.items;
      item.point[2] += static_cast<int64_t>(item.taken) - 1;
      moved = Windows::Advance(written(), item.point);
      if (moved == Windows::kNone) {
        ++item.image;
        moved = 0;
      }
    }
  }
};

}  // namespace vpod::engine
