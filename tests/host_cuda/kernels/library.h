// The shape of library.cu's CubBlock.
#pragma once

inline constexpr int kThreads = 128, kItems = 3;
