#pragma once
/// Constants of NCCL's tuning model. Names as in src/graph/tuning.cc and src/graph/topo.h, version 2.28.9; in
/// microseconds and GB/s as there, converted where used.
#include <array>

namespace orrery::cost::nccl {

inline constexpr double kMicro = 1e-6;  ///< s per us
inline constexpr double kGiga = 1e9;    ///< bytes per GB

enum Protocol { LL = 0, LL128 = 1, simple = 2 };
inline constexpr std::array<const char*, 3> kProtocols = {"LL", "LL128", "Simple"};
using ByProtocol = std::array<double, 3>;
/// By architecture: volta, ampere, hopper, blackwell.
using ByArchitecture = std::array<double, 4>;
/// By number of nodes: one, two, three and more.
using ByNodes = std::array<double, 3>;

// baseLatencies
inline constexpr ByProtocol kBaseTree = {6.8, 14.0, 8.4};
inline constexpr ByProtocol kBaseRing = {6.6, 14.0, 8.4};
inline constexpr double kBasePat = 8.0;
// hwLatencies[NVLINK | PCI | NET]
inline constexpr ByProtocol kTreeNvlink = {0.6, 1.25, 4.0}, kTreePci = {1.0, 1.9, 4.0}, kTreeNet = {5.0, 8.5, 14.0};
inline constexpr ByProtocol kRingNvlink = {0.6, 1.9, 3.4}, kRingPci = {1.0, 2.5, 5.7}, kRingNet = {2.7, 4.0, 14.0};
inline constexpr double kNvlsNvlink = 25, kNvlsNet = 18, kNvlsTreeNvlink = 25, kNvlsTreeNet = 20.9;
inline constexpr double kDirectIntra = 3.7, kDirectNet = 31, kDirectPeer = 0.4, kChainIntra = 2.8, kChainNet = 30;
// getNetOverhead: host work per network step, us; three times that for Simple
inline constexpr double kNetOverheadAmd = 2.0, kNetOverheadOther = 1.0, kNetOverheadSimple = 3.0;
// llMaxBws: for one node by architecture; for more nodes by CPU, two nodes and more than two
inline constexpr ByArchitecture kLlOneNode = {39.0, 87.7, 141.0, 282.0};
inline constexpr std::array<double, 2> kLlIntel = {39.0, 20.4}, kLlAmd = {22.5, 19.0};
// perChMaxRingLL128Bws, perChMaxTreeLL128Bws, perChMaxTreeBws
inline constexpr std::array<ByNodes, 4> kRingLl128Channel = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}}};
inline constexpr std::array<ByNodes, 4> kTreeLl128Channel = {
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}}};
inline constexpr std::array<ByNodes, 4> kTreeChannel = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}}};
inline constexpr double kLlRingShare = 0.5;      ///< LL carries a flag with every 4 bytes
inline constexpr double kLl128RingShare = 0.92;  ///< 120 of 128 bytes, and margin
inline constexpr double kTreeShare = 0.92;
inline constexpr double kTreeLl = 1.0 / 3.8;
inline constexpr double kTreeLl128OneNode = 7.0 / 9.0, kTreeLl128 = 15.0 / 16.0;
inline constexpr double kPatShare = 0.75;
inline constexpr double kPatInterDivisor = 3.5, kPatPerRank = 2.8;
// nvlsEfficiency; heads as found by the search: at most 8 for 8 GPUs, at the speeds of speedArrayIntra
inline constexpr ByArchitecture kNvlsEfficiency = {0, 0, 0.85, 0.74};
inline constexpr ByArchitecture kNvlsHeadMost = {0, 0, 60.0, 90.0};          ///< GB/s per head, fastest speed tried
inline constexpr ByArchitecture kNvlsNodeMost = {0, 0, 8 * 40.0, 8 * 80.0};  ///< eight heads, fastest speed that fits
// perChMaxNVLSTreeBws
inline constexpr std::array<ByNodes, 4> kNvlsTreeChannel = {
    {{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96.0, 43.8}}};
inline constexpr double kDirectHopper = 0.85, kDirectNet90 = 0.9;  ///< CollNetDirect: on Hopper; its gather's NIC share
// A ring with full slots waits for the network's round trip: plateau of Simple between nodes
inline constexpr double kPlateauVolta = 1.9, kPlateauAmpere = 1.4, kPlateauBytes = 64;
/// GB/s of one ring channel as the search finds it on DGX machines: 12 x 10, 24 x 10, 24 x 15, 24 x 30.
inline constexpr ByArchitecture kChannel = {10, 10, 15, 30};
// treeCorrectionFactor[protocol][floor(log2(bytes / 64))]
inline constexpr int kCorrections = 23;
inline constexpr std::array<std::array<double, kCorrections>, 3> kTreeCorrection = {{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9},
}};
/// Bytes of a slot in the transport's buffer: NCCL_BUFFSIZE 4 MiB in 8 steps. A message of up to 32 slots stays on its
/// channel (calcP2pChunkSize and the channel count next to it), and uses at least 4 and at most 32 channels.
inline constexpr double kSlot = 512.0 * 1024, kSlotsPerChannel = 32;
inline constexpr double kSendChannelsLeast = 4, kSendChannelsMost = 32;

}  // namespace orrery::cost::nccl
