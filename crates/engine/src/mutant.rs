//! Known mutations of the engine: each breaks one rule that the whole promise rests on, and each must be caught by the
//! simulator (`crates/sim/tests/mutants.rs`). They exist only in builds with the feature `mutants`; elsewhere
//! [`active`] is a constant `false`.

/// One broken rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mutant {
    /// The commit record is written before the stripe's data is durable.
    CommitBeforeData = 1,
    /// A replaced stripe is reused before the record that replaces it is durable.
    ReuseBeforeCommit = 2,
    /// A flush leaves one disk out.
    FlushForgetsDisk = 3,
    /// A disk that missed updates is trusted like a current one.
    StaleDiskTrusted = 4,
    /// The labels refer to a checkpoint that is not durable yet.
    LabelBeforeCheckpoint = 5,
    /// The log is cut behind a checkpoint although landed data before it is nowhere else.
    LandingRetiredEarly = 6,
    /// Metadata pages are written before the records they follow from are durable.
    PagesAheadOfLog = 7,
    /// Commits become durable although disks were lost before their stripes were.
    UnsafeCommits = 8,
    /// A disk that is back counts as up to date without the metadata it missed.
    ReadmitCopiesNothing = 9,
    /// What a stripe was written without is not put on record.
    MissedStripsForgotten = 10,
    /// An absence of which nobody kept a record is taken for one of which somebody did.
    UnknownAbsenceTracked = 11,
    /// Commits are durable before the labels name the disks that were lost.
    NoLabelsBeforeAck = 12,
    /// What a lost disk had taken since its last flush is not put on record.
    TouchedForgotten = 13,
    /// A slot has its new home before that disk was flushed.
    RehomedWithoutFlush = 14,
    /// Stripes that were written while their slot moved are not copied after it.
    MoveForgetsNewStripes = 15,
    /// The log ends at a batch that cannot be read, though its successor can.
    LogEndsInItsMiddle = 16,
    /// A batch is durable before one of the log disks was flushed.
    LoggerUnflushed = 17,
    /// An opening writes before what it found is durable.
    OpeningFlushesNothing = 18,
    /// Every version of a metadata page is written over the one before.
    PagesKeepOneSlot = 19,
    /// What a dropped segment or table had is free before the record that drops it is durable.
    SlabsFreedBeforeDrop = 20,
    /// Slabs are discarded before the record that drops their segment is durable.
    DiscardBeforeDrop = 21,
    /// Slabs are discarded after they were given out again.
    DiscardAfterReuse = 22,
    /// A slot moves to a disk that was lost, and back, while it moved.
    MoveForgetsLosses = 23,
    /// A pool below half of its voters goes on.
    FreezeIgnored = 24,
    /// A checkpoint counts although disks went or came while it was taken.
    CheckpointForgetsLosses = 25,
    /// A disk that is back counts as one that missed nothing.
    ReturnedDiskIsWhole = 26,
    /// A page older than the checkpoint saw is believed.
    PageVersionsIgnored = 27,
    /// A log disk that came back while a batch was written does not get it.
    BatchNotRepeated = 28,
    /// Batches of an opening that was left behind count.
    LeftBehindBatchesCount = 29,
    /// What was read ahead is served although its place holds something else by now.
    AheadOutlivesPlace = 30,
    /// What is read is not compared with its checksums.
    ReadsUnproven = 31,
    /// A flush does not wait for what took the place of a version that was withdrawn.
    SuccessorsNotAwaited = 32,
    /// A commit is durable before what its stripe lacks is on record.
    NotesAfterCommits = 33,
    /// A page is written anew, for its last write may not be durable, to the slot of the one before.
    LastImageOverwritten = 34,
    /// Once it is the turn of reads on a disk, it is theirs as long as anybody reads.
    TurnNeverEnds = 35,
    /// Copies of metadata stay on one disk when the pool has others, and are never more than they were.
    CopiesStayTogether = 36,
    /// Pages of the tree are written to one of their copies only.
    TreeWrittenOnce = 37,
    /// Copies of the tree's pages that were found wrong stay wrong.
    TreeNotHealed = 38,
    /// The first copy of a page of the tree that can be read is taken for it.
    TreeCopyBelieved = 39,
    /// A checkpoint does not say which places its root takes and frees.
    TreeRoomForgotten = 40,
    /// Places that a root freed are given out again although somebody reads an older one.
    TreeReusedEarly = 41,
    /// The places of a checkpoint that began anew stay taken.
    TreePlacesNotGivenBack = 42,
    /// Metadata that moves leaves the pages of the tree behind.
    TreeLeftBehind = 43,
    /// A disk that is back is given a label before the one it has is durable.
    ReturnFlushesNothing = 44,
    /// A checkpoint does not name the metadata segments that were made for its own tree.
    TreeHomeUnnamed = 45,
    /// What is replayed of the log is not written to the tree.
    TreeReplayUntold = 46,
    /// A checkpoint has a chunk only if it still exists when its pages were written.
    ChunkPutLate = 47,
    /// A tree that was begun anew has nothing of what did not change since.
    TreeBegunAnewEmpty = 48,
    /// A checkpoint counts although changes of the configuration did not come into the tree.
    TreeStuckIgnored = 49,
    /// A pool whose disks were given up goes on.
    ReleasedPoolGoesOn = 50,
    /// A fine unit is void before the commit that replaces it is durable.
    UnitVoidedEarly = 51,
    /// A packed stripe is free while a unit of it is alive.
    PackFreedEarly = 52,
    /// A discard leaves the fine units of its stripes.
    DiscardKeepsUnits = 53,
    /// The log's tail passes the record of a packed stripe that is alive.
    TailPassesPacks = 54,
    /// A replay forgets that a whole stripe makes its fine units void.
    ReplayKeepsUnits = 55,
    /// A packed stripe is committed before its disks were flushed.
    PackUnflushed = 56,
    /// The mover fills a stripe with what it read, whatever was written meanwhile.
    MoverOverwrites = 57,
    /// A check that is to look only puts right what it finds.
    CheckHeals = 58,
    /// Packed stripes take what memory they like.
    PackMemoryUncounted = 59,
    /// Packed stripes are written before the labels say that there may be some.
    PackBitUnannounced = 60,
    /// The labels say that there are no packed stripes while the log still has records of them.
    PackBitGoesEarly = 61,
    /// What comes to the configuration with data is counted when it is there.
    ConfigRoomUncounted = 62,
    /// A page of the tree is copied from disks that missed updates, where they agree.
    StalePagesBelieved = 63,
    /// A label that an opening has repeated with its promise does not count as seen.
    PromiseNotSeen = 64,
    /// An old image of a checksum page is believed where all disks lost the newest one.
    SheetVersionsIgnored = 65,
    /// Whose stripe lies at a place is not compared with whose is wanted.
    OwnerNotCompared = 66,
    /// What is missing of a block is read below a version of its stripe that is in flight.
    BlockFilledTooEarly = 67,
    /// A copy that an opening found behind is left so where its disk does not answer in time.
    LateCopyForgotten = 68,
    /// A copy of a checksum page that lacks what was promised is no damage.
    SheetDamageOverlooked = 69,
    /// A rebalance sends slots to disks that do not take them.
    ShiftNotAsked = 70,
    /// A rebalance moves the last copy of what is not repaired yet.
    LastCopyShifted = 71,
    /// A disk that went on, where a person told older disks to, is taken for one that only missed something.
    StrayedBelieved = 72,
    /// A batch that was cut short when the pool was to be closed is never written, though its disks come back.
    CutBatchForgotten = 73,
    /// A copy of a page of the tree whose disk is too slow to tell passes for a sound one.
    LateTreeCopyPassed = 74,
    /// A write-back cache that lacks redundancy takes what is written all the same, and keeps it.
    CacheThinTaken = 75,
    /// A disk that is not protected against a power cut is not flushed.
    UnprotectedUnflushed = 76,
    /// The table of packed stripes of a cache that is to lie elsewhere is dropped while it holds some.
    CacheDroppedFull = 77,
    /// A replay takes the packed stripes of a cache for as long as those of the table below.
    CacheUnitsMiscounted = 78,
    /// A virtual disk has a cache before the labels say that there may be one.
    CacheBitUnannounced = 79,
    /// A disk that comes to be a journal gives up copies of metadata that too few other disks have.
    JournalCopiesGivenUp = 80,
    /// The log has two copies, whatever the layouts survive.
    LogCopiesTooFew = 81,
    /// What follows the log carries it before it has all of it.
    FollowerNamedEarly = 82,
    /// All versions of a stripe have one birth.
    BirthsAlike = 83,
    /// What a checkpoint says of space in use is of the moment it began, and what changed while it ran is forgotten.
    SpacePutEarly = 84,
    /// A stripe that was replaced or unmapped stays in use.
    FreedStaysInUse = 85,
    /// A segment counts as free where what is said of its stripes is lost.
    LostSpaceIsFree = 86,
    /// An image of a stripe table that no checkpoint names is what a replay begins with.
    UnnamedPageTaken = 87,
    /// A zero entry does not end the search: what older tables have is read.
    ZeroFallsThrough = 88,
    /// Older tables let go of what is only about to rise.
    OlderFreedEarly = 89,
    /// An older table is dropped while it maps a stripe.
    OlderTableDroppedEarly = 90,
    /// What landed before a new table came on top comes into it after a crash.
    NewTableRetiresNothing = 91,
    /// A new table comes on top before the labels say that there may be stacks.
    StackBitUnannounced = 92,
    /// What rose counts as durable as soon as it is on record, though disks lost it.
    UnsettledHides = 93,
    /// A page of a stripe table leaves memory although no checkpoint has what changed in it.
    DirtyTablePageDropped = 94,
    /// A page of a stripe table that comes back into memory may be older than the one that left it.
    OldTablePageBelieved = 95,
    /// What a weft that knows nothing of space in use left of it in the tree is believed.
    OldSpaceBelieved = 96,
    /// What is read while a slot lacks strips, and arrives when it has them, is held against the disk.
    LateReadAccuses = 97,
    /// A disk that was put back from a copy made after its last label counts as one that was never away.
    RolledBackUnseen = 98,
    /// Batches that were written before the labels said how long one may be are taken for as short as those since.
    BatchBoundBelieved = 99,
    /// Stripes that a flush waits for are held for the sake of flushes.
    FlushWaitsForItself = 100,
    /// Pages of metadata on a disk that was put back, and counts as up to date, are as they should be.
    PutBackPagesBelieved = 101,
    /// The emptying of a disk goes on when the disk is used again.
    EmptyingOutlivesUse = 102,
    /// An opening waits for disks that nobody can bring back.
    OpeningWaits = 103,
    /// A page of a stripe table is looked for on the disks that answer in time only.
    TablePageInTime = 104,
    /// What a disk did not answer because it went counts as bad.
    GoneCountsAsBad = 105,
    /// Only what a lost disk had not flushed counts as missed, not all that was written to it since its last label.
    LossForgetsLabel = 106,
    /// What the log says was written to a disk that is away at an opening does not count as missed.
    AbsenceForgetsLog = 107,
    /// A bad block stays as it is where another slot of its segment has moved since it was read.
    MovesStopHealing = 108,
    /// A label that was cut short opens the pool nowhere.
    AttemptedForgotten = 109,
    /// What is put in order takes the room that clients need.
    OrderTakesRoom = 110,
    /// What was read to be put in order replaces what a client wrote meanwhile.
    OrderOverwritesNewer = 111,
    /// What lies in order is put in order again.
    OrderNeverRests = 112,
    /// More is put in order than what was written is worth.
    OrderCostsAnything = 113,
    /// What the mover passes by waits for the next sweep.
    PassedByForgotten = 114,
    /// A fast tier takes more than its size.
    TierSizeIgnored = 115,
    /// A fast tier is dropped while stripes lie in it.
    TierDroppedFull = 116,
    /// A pool has a fast tier, and its labels do not say so.
    TierBitUnannounced = 117,
    /// A fast tier that lacks redundancy takes stripes, and keeps what it has.
    TierThinTaken = 118,
    /// A stripe that leaves for the fast tier keeps its claim in the table.
    TierClaimKept = 119,
    /// A move between tiers writes over what came meanwhile.
    TierMoveOverwrites = 120,
    /// New data takes the places that what lies in a fast tier needs to leave it.
    TierTakesRoom = 121,
    /// A segment in which a stripe became free is listed as it was.
    FreedStaysUnlisted = 130,
    /// The lists of segments are not made anew when a disk has come or gone.
    ListsForgetDisks = 131,
    /// What lies in a read cache is believed without proof.
    ShelfUnproven = 140,
    /// What a read cache has of a place is believed when the place is another stripe's.
    ShelfOutlivesPlace = 141,
    /// Who reads waits until what was read lies in the read cache.
    ShelfFillDelays = 142,
    /// A check reads what a read cache has.
    CheckReadsShelf = 143,
    /// The slabs of a read cache count as free.
    ShelfSlabsFree = 144,
    /// The labels do not say that there is a read cache.
    ReadCacheBitUnannounced = 145,
    /// Slabs of a read cache are free while something is written there.
    ShelfSlabsFreedEarly = 146,
    /// A disk of a read cache that does not answer is waited for.
    ShelfWaits = 147,
    /// What lies packed and cannot be read is read from the table below.
    LostFallsThrough = 148,
    /// A write-back cache that is to survive what lies below it makes do with fewer disks.
    CacheLosesUnasked = 149,
    /// A commit flushes disks that it says nothing of.
    CommitsFlushAll = 150,
    /// One copy of a metadata page is taken for the page, whatever version it has.
    OneCopyBelieved = 151,
    /// A sound strip takes the room, on its way off a disk, that a strip which is lacking needs.
    LeavesBeforeRepair = 152,
    /// What a virtual disk that is removed had committed is not flushed before these commits are durable.
    DroppedUnflushed = 153,
    /// A segment lies apart from the others that are being filled even on disks that are fuller, and where fewer can be
    /// made after it.
    FrontsWasteRoom = 154,
    /// A replay takes a stripe that was moved for one that was written: the packed units above it are void.
    MoveVoidsUnits = 155,
    /// What was moved replaces what was written, or unmapped, meanwhile.
    MoveReplacesNewer = 156,
    /// A stripe is said to lie where it was moved to before that is durable.
    MoveUnflushed = 157,
    /// A segment that is being emptied takes stripes.
    EmptiedTakesStripes = 158,
    /// Clients take the slabs that are kept for what rises from older tables.
    RisingKeepsNothing = 159,
    /// Stripes are moved before the labels say that there may be records of that.
    MoveBitUnannounced = 160,
    /// A write is refused for want of room while disks that have some are away for a moment.
    RoomIsNotAwaited = 161,
    /// A stripe of which only a copy was lost counts as lost.
    LostCopyIsLoss = 162,
    /// What a client writes into a copy is forgotten with it, in silence.
    WrittenCopyForgiven = 163,
    /// A slot that finds no home is left without one while hollow segments have what it needs.
    RepairEmptiesNothing = 164,
    /// A stripe that lies in the fast tier again, for its copy below was lost, is not known to.
    RestoredUnknownToTier = 165,
    /// The annex of a label is written at the head of the disk only.
    AnnexAtOneEnd = 166,
    /// A pool grows beyond 64 disks, although a disk has no room for the annexes of its labels.
    AnnexRoomUnchecked = 167,
    /// The record of a packed stripe that is in a shadow is not waited for: the log's tail stays before it.
    ShadowPinsTail = 168,
    /// Who empties the log waits for what the mover has in flight.
    ShortWaitsForMover = 169,
    /// What was read ahead of the mover is kept when it rests.
    PackedAheadKept = 170,
    /// A disk is held to have no room beside it that hollow segments could give.
    LeavesWithoutEmptying = 171,
    /// How much the mover has to do is told by how many packed stripes there are, however little they hold.
    MoverCountsStripes = 172,
    /// What was merged is not flushed before it is committed, although the log lies on other disks: who waits for the
    /// log waits for its disks, too.
    FlushWaitsForMerged = 173,
    /// What was merged counts as flushed before it is.
    MergedUnflushed = 174,
    /// What is left in packed stripes that hold little is never brought together.
    PacksStayThin = 175,
    /// What is brought together replaces what was written meanwhile.
    RepackedReplacesNewer = 176,
    /// What is brought together retires what landed of its stripes, which may be newer.
    RepackedRetires = 177,
    /// Who flushes waits for all whole stripes that are on their way, though the log holds what was written into them.
    FlushWaitsForMoved = 178,
    /// A stripe on its way counts as durable, whether the log holds what was written into it or not.
    SealedIsLanded = 179,
    /// A stripe that cannot be packed any more has all that come after it merged.
    OneUnpackableEndsAll = 180,
    /// What gathered behind a version of its stripe that was on its way is forgotten by flushes when that is down.
    GatheredForgotten = 181,
    /// A block that cannot be healed is held against its disk whenever it is read.
    BadBlockCountedAgain = 182,
    /// Packed stripes that cannot be read are read again and again, to be packed again.
    RepackReadsAgain = 183,
    /// The rest of a stripe on its way lands behind what was written after it.
    OlderLandsLater = 184,
    /// The log does not keep what landed of a stripe on its way until that is committed.
    LandedInFlightForgotten = 185,
    /// A stripe whose rest landed on its way is committed before its disks are flushed.
    LandedInFlightUnflushed = 186,
    /// The commit of a stripe whose rest landed on its way does not retire that.
    LandedInFlightNotRetired = 187,
    /// However many stripes are on their way, what is flushed of them lands.
    LandsAnyBacklog = 188,
    /// What was tried in vain for who waits for a free place is tried again although nothing has changed. Not in
    /// [`ALL`]: no seed and no story is known that catches it, although storms of layouts that change did once.
    RelievesInVain = 189,
    /// Metadata moves to a disk that was lost, and is back and not up to date, since it was chosen.
    MetadataMovesToStale = 190,
    /// Metadata is made on disks none of which is up to date.
    MetadataMadeStale = 191,
    /// Copies of batches lie behind their positions before the labels say that they may.
    SpreadUnannounced = 192,
    /// A copy of a batch begins before the end of the one before it on that disk.
    CopiesOverlap = 193,
    /// A copy of a batch lies further behind its position than it may.
    CopiesTooFar = 194,
    /// A copy of a batch that begins near the end of its round goes on behind the ring.
    CopiesLeaveTheRound = 195,
    /// A batch that a disk lacks is brought to its position there, whatever lies there of earlier ones.
    BroughtAtPosition = 196,
    /// A disk whose copies lie behind their positions goes on following at the positions.
    FormerLoggerFollows = 197,
    /// Copies of batches are looked for only as far behind the batch before as positions may lie.
    CopiesFoundNearby = 198,
    /// A disk that takes longer to begin than was thought is told no sooner.
    LeadNeverGrows = 199,
    /// A checkpoint puts a chunk into the tree that was made after it began.
    FreshChunkPutEarly = 200,
    /// A batch that was cut short is written behind the copy of it that a disk has.
    CopyBehindItself = 201,
    /// A disk that lacks batches is looked through for each of them.
    LackingLookedThrough = 202,
    /// A read is overtaken by others on its disk without end.
    OvertakesForEver = 203,
    /// The middle of a stream is given to a disk before it has its beginning.
    BeginsInTheMiddle = 204,
    /// A disk that seeks is slow when it has much to do.
    QueueIsSlow = 205,
    /// A disk that seeks gets its reads in any order.
    ReadsOutOfOrder = 206,
    /// The reads of a stream wait for a disk that stalls one after the other.
    StallsAreQueuedFor = 207,
    /// No segment is made for packed stripes while a disk is missing that it would lie on.
    PacksWaitForDisks = 208,
    /// What gathers claims the last segments, and none is left to pack it.
    GathersLastSegments = 209,
    /// Where there is no room for as many packed stripes as there may be, they fill before any is moved down.
    PacksCountNoRoom = 210,
    /// A slab that rested is discarded although somebody has taken it since.
    DiscardsWhatIsTaken = 211,
    /// What was lost before it was durable, and is in memory, is lost all the same.
    KeptIsLost = 212,
    /// A lost version that gathers again hides a newer one that is in flight.
    GathersOverNewer = 213,
    /// A flush that waited for a lost version does not wait until it has landed again.
    GatheredAgainForgotten = 214,
    /// A copy of a disk is taken for it, although the pool cannot do without the disk.
    CopiesStandIn = 215,
    /// A disk that lacks what was made durable on it last is taken for what went.
    RolledBackReturns = 216,
    /// A disk that is back is asked for what was written over, or discarded.
    WrittenOverIsAskedFor = 217,
    /// A disk that is back is asked for what it may have lost with its power.
    LostIsAskedFor = 218,
    /// What lies on a disk counts as there, although nobody knows what that lacks.
    UnprovenIsSafe = 219,
    /// The mover goes by what is packed, and not by what is about to be.
    MoverSeesNoneComing = 220,
    /// Where the log may not go on as far as the heads have come, it goes on behind all of them.
    LogLagsBehindHeads = 221,
    /// What cannot leave the log is moved to its head round after round.
    PinsMoveForEver = 222,
    /// A virtual disk whose stripes cannot leave the log may fill it.
    PinsTakeAll = 223,
    /// A stripe that is held does not count as one that flushes look at.
    HeldIsNotLanded = 224,
    /// However much is held, more may be.
    HoldsWithoutEnd = 225,
    /// What is held when its client rests, or goes on as a stream, stays in memory.
    HeldForEver = 226,
    /// A long copy of the log counts as begun when its first byte is on the wire.
    LongCopiesBeginAtOnce = 227,
    /// What clients have had of the log since it was gone through does not count.
    BusyLogIsInVain = 228,
    /// What a removed virtual disk has set aside counts as pinned.
    RemovedPins = 229,
    /// A whole stripe for which the log has no room counts as on its way, although it waits for an older version.
    WholeGathersUnlanded = 230,
    /// On disks that do not seek packed stripes have their large share, whatever room there is beside them.
    PacksTakeTheRoom = 231,
}

/// Every mutant.
#[rustfmt::skip]
pub const ALL: [Mutant; 214] = [
    Mutant::CommitBeforeData, Mutant::ReuseBeforeCommit, Mutant::FlushForgetsDisk, Mutant::StaleDiskTrusted,
    Mutant::LabelBeforeCheckpoint, Mutant::LandingRetiredEarly, Mutant::PagesAheadOfLog, Mutant::UnsafeCommits,
    Mutant::ReadmitCopiesNothing, Mutant::MissedStripsForgotten, Mutant::UnknownAbsenceTracked,
    Mutant::NoLabelsBeforeAck, Mutant::TouchedForgotten, Mutant::RehomedWithoutFlush, Mutant::MoveForgetsNewStripes,
    Mutant::LogEndsInItsMiddle, Mutant::LoggerUnflushed, Mutant::OpeningFlushesNothing, Mutant::PagesKeepOneSlot,
    Mutant::SlabsFreedBeforeDrop, Mutant::DiscardBeforeDrop, Mutant::DiscardAfterReuse, Mutant::MoveForgetsLosses,
    Mutant::FreezeIgnored, Mutant::CheckpointForgetsLosses, Mutant::ReturnedDiskIsWhole,
    Mutant::PageVersionsIgnored, Mutant::BatchNotRepeated, Mutant::LeftBehindBatchesCount,
    Mutant::AheadOutlivesPlace, Mutant::ReadsUnproven, Mutant::SuccessorsNotAwaited, Mutant::NotesAfterCommits,
    Mutant::LastImageOverwritten, Mutant::TurnNeverEnds, Mutant::CopiesStayTogether, Mutant::TreeWrittenOnce,
    Mutant::TreeNotHealed, Mutant::TreeCopyBelieved, Mutant::TreeRoomForgotten, Mutant::TreeReusedEarly,
    Mutant::TreePlacesNotGivenBack, Mutant::TreeLeftBehind, Mutant::ReturnFlushesNothing, Mutant::TreeHomeUnnamed,
    Mutant::TreeReplayUntold, Mutant::TreeBegunAnewEmpty, Mutant::TreeStuckIgnored, Mutant::ReleasedPoolGoesOn,
    Mutant::UnitVoidedEarly, Mutant::PackFreedEarly, Mutant::DiscardKeepsUnits, Mutant::TailPassesPacks,
    Mutant::ReplayKeepsUnits, Mutant::PackUnflushed, Mutant::MoverOverwrites, Mutant::ChunkPutLate,
    Mutant::CheckHeals, Mutant::PackMemoryUncounted, Mutant::PackBitUnannounced, Mutant::PackBitGoesEarly,
    Mutant::ConfigRoomUncounted, Mutant::StalePagesBelieved, Mutant::PromiseNotSeen, Mutant::SheetVersionsIgnored,
    Mutant::OwnerNotCompared, Mutant::BlockFilledTooEarly, Mutant::LateCopyForgotten, Mutant::SheetDamageOverlooked,
    Mutant::ShiftNotAsked, Mutant::LastCopyShifted, Mutant::StrayedBelieved, Mutant::CutBatchForgotten,
    Mutant::LateTreeCopyPassed, Mutant::CacheThinTaken, Mutant::UnprotectedUnflushed, Mutant::CacheDroppedFull,
    Mutant::CacheUnitsMiscounted, Mutant::CacheBitUnannounced, Mutant::JournalCopiesGivenUp,
    Mutant::LogCopiesTooFew, Mutant::FollowerNamedEarly, Mutant::BirthsAlike, Mutant::SpacePutEarly,
    Mutant::FreedStaysInUse, Mutant::LostSpaceIsFree, Mutant::UnnamedPageTaken, Mutant::ZeroFallsThrough,
    Mutant::OlderFreedEarly, Mutant::OlderTableDroppedEarly, Mutant::NewTableRetiresNothing,
    Mutant::StackBitUnannounced, Mutant::UnsettledHides, Mutant::DirtyTablePageDropped,
    Mutant::OldTablePageBelieved, Mutant::OldSpaceBelieved, Mutant::LateReadAccuses, Mutant::RolledBackUnseen,
    Mutant::BatchBoundBelieved, Mutant::FlushWaitsForItself, Mutant::PutBackPagesBelieved,
    Mutant::EmptyingOutlivesUse, Mutant::OpeningWaits, Mutant::TablePageInTime, Mutant::GoneCountsAsBad,
    Mutant::LossForgetsLabel, Mutant::AbsenceForgetsLog, Mutant::MovesStopHealing, Mutant::AttemptedForgotten,
    Mutant::OrderTakesRoom, Mutant::OrderOverwritesNewer, Mutant::OrderNeverRests, Mutant::OrderCostsAnything,
    Mutant::PassedByForgotten, Mutant::TierSizeIgnored, Mutant::TierDroppedFull, Mutant::TierBitUnannounced,
    Mutant::TierThinTaken, Mutant::TierClaimKept, Mutant::TierMoveOverwrites, Mutant::TierTakesRoom,
    Mutant::FreedStaysUnlisted, Mutant::ListsForgetDisks, Mutant::ShelfUnproven, Mutant::ShelfOutlivesPlace,
    Mutant::ShelfFillDelays, Mutant::CheckReadsShelf, Mutant::ShelfSlabsFree, Mutant::ReadCacheBitUnannounced,
    Mutant::ShelfSlabsFreedEarly, Mutant::ShelfWaits, Mutant::LostFallsThrough, Mutant::CacheLosesUnasked,
    Mutant::CommitsFlushAll, Mutant::OneCopyBelieved, Mutant::LeavesBeforeRepair, Mutant::DroppedUnflushed,
    Mutant::FrontsWasteRoom, Mutant::MoveVoidsUnits, Mutant::MoveReplacesNewer, Mutant::MoveUnflushed,
    Mutant::EmptiedTakesStripes, Mutant::RisingKeepsNothing, Mutant::MoveBitUnannounced, Mutant::RoomIsNotAwaited,
    Mutant::LostCopyIsLoss, Mutant::WrittenCopyForgiven, Mutant::RepairEmptiesNothing,
    Mutant::RestoredUnknownToTier, Mutant::AnnexAtOneEnd, Mutant::AnnexRoomUnchecked, Mutant::ShadowPinsTail,
    Mutant::ShortWaitsForMover, Mutant::PackedAheadKept, Mutant::LeavesWithoutEmptying, Mutant::MoverCountsStripes,
    Mutant::FlushWaitsForMerged, Mutant::MergedUnflushed, Mutant::PacksStayThin, Mutant::RepackedReplacesNewer,
    Mutant::RepackedRetires, Mutant::FlushWaitsForMoved, Mutant::SealedIsLanded, Mutant::OneUnpackableEndsAll,
    Mutant::GatheredForgotten, Mutant::BadBlockCountedAgain, Mutant::RepackReadsAgain, Mutant::OlderLandsLater,
    Mutant::LandedInFlightForgotten, Mutant::LandedInFlightUnflushed, Mutant::LandedInFlightNotRetired,
    Mutant::LandsAnyBacklog, Mutant::MetadataMovesToStale, Mutant::MetadataMadeStale, Mutant::SpreadUnannounced,
    Mutant::CopiesOverlap, Mutant::CopiesTooFar, Mutant::CopiesLeaveTheRound, Mutant::BroughtAtPosition,
    Mutant::FormerLoggerFollows, Mutant::CopiesFoundNearby, Mutant::LeadNeverGrows, Mutant::FreshChunkPutEarly,
    Mutant::CopyBehindItself, Mutant::LackingLookedThrough, Mutant::OvertakesForEver, Mutant::BeginsInTheMiddle,
    Mutant::QueueIsSlow, Mutant::ReadsOutOfOrder, Mutant::StallsAreQueuedFor, Mutant::PacksWaitForDisks,
    Mutant::GathersLastSegments, Mutant::PacksCountNoRoom, Mutant::DiscardsWhatIsTaken,
    Mutant::KeptIsLost, Mutant::GathersOverNewer, Mutant::GatheredAgainForgotten, Mutant::CopiesStandIn,
    Mutant::RolledBackReturns, Mutant::WrittenOverIsAskedFor, Mutant::LostIsAskedFor,
    Mutant::UnprovenIsSafe, Mutant::MoverSeesNoneComing, Mutant::LogLagsBehindHeads,
    Mutant::PinsMoveForEver, Mutant::PinsTakeAll, Mutant::HeldIsNotLanded, Mutant::HoldsWithoutEnd,
    Mutant::HeldForEver, Mutant::LongCopiesBeginAtOnce, Mutant::BusyLogIsInVain, Mutant::RemovedPins,
    Mutant::WholeGathersUnlanded, Mutant::PacksTakeTheRoom,
];

/// The mutant of this name.
pub fn named(name: &str) -> Option<Mutant> {
    ALL.into_iter().find(|mutant| alloc::format!("{mutant:?}") == name)
}

#[cfg(feature = "mutants")]
static ACTIVE: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Breaks one rule, or none, from now on.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    ACTIVE.store(mutant.map_or(0, |mutant| mutant as u8), core::sync::atomic::Ordering::Relaxed);
}

/// Whether `mutant` is what this build is told to be.
#[cfg(feature = "mutants")]
pub fn active(mutant: Mutant) -> bool {
    ACTIVE.load(core::sync::atomic::Ordering::Relaxed) == mutant as u8
}

/// Whether `mutant` is what this build is told to be: never.
#[cfg(not(feature = "mutants"))]
pub const fn active(_: Mutant) -> bool {
    false
}
