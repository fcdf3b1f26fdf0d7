//! Everything weft can be asked. An operation is one value: what people type, what goes over the socket, its schema,
//! its rules for what was typed, and its answer with text and JSON. The client, the server, the OpenAPI document and
//! the command line know no operation by name: they are written once, over [`Operation`] and the list below.
//!
//! Invariants
//! 1. An operation stands in the list below, once, and nowhere else is said how it goes over the socket.
//! 2. Who serves the list performs every operation of it: one that nobody performs does not compile.
//! 3. A command that weft offers is an operation that prints itself, with the names of whoever is told.

pub mod disk;
pub mod dump;
pub mod export;
pub mod job;
pub mod line;
pub mod measure;
pub mod mount;
pub mod plan;
pub mod pool;
pub mod settings;
pub mod table;
pub mod text;
pub mod tier;
pub(crate) mod values;
pub mod vdisk;
pub mod vdisk_change;
mod vdisk_class;
pub mod vdisk_map;
pub mod vdisk_set;
mod vdisk_text;
mod vdisk_tier;
pub mod watch;

use crate::api::error::{Answer, ApiError, BadValue, Kind};
use crate::api::export::ExportInfo;
use crate::api::job::JobInfo;
use crate::api::mount::MountInfo;
use crate::api::name::VdiskName;
use crate::api::plan::PlanMade;
use crate::api::pool::{CheckReport, DiskInfo, Importable, PoolInfo};
use crate::api::tier::TierCurve;
use crate::api::vdisk::{Explanation, VdiskInfo, VdiskMapped};
use crate::api::watch::{Change, EventPage, Stat, Status, Version};
use clap::Args;
use disk::{DiskAdd, DiskList, DiskRemove, DiskReplace, DiskShow};
use export::{ExportAdd, ExportList, ExportRemove, ExportShow, Offered};
use job::{JobList, JobShow, JobStart, JobSteer};
use mount::{MountForget, MountList};
use plan::PlanAsk;
use pool::{PoolCheck, PoolCreate, PoolExport, PoolImport, PoolImportable, PoolList, PoolRemove, PoolRename, PoolShow};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::{DiskSet, PoolSet};
use std::path::{Path, PathBuf};
use text::Text;
use tier::{TierOptimize, TierPin, TierReport};
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::schema::{ArrayBuilder, Ref, Schema};
use utoipa::openapi::{HttpMethod, RefOr};
use utoipa::{IntoParams, ToSchema};
use vdisk::{Explain, VdiskClear, VdiskCreate, VdiskList, VdiskRemove, VdiskRename, VdiskResize, VdiskShow};
use vdisk_change::VdiskChange;
use vdisk_map::VdiskMap;
use vdisk_set::VdiskSet;
use watch::{EventList, StatShow, StatusShow, VersionShow};

operations! {
    // Operation: its name in the document, its request (the parts of the path are fields of the operation; its other
    // fields are carried in the query or in the body, or there are none) and what is answered.
    VersionShow: "version" Get "/version" () Nothing => Version;
    StatusShow: "status" Get "/status" () Query => Status;
    StatShow: "stat" Get "/stat" () Query => Stat;
    EventList: "events" Get "/events" () Query => EventPage;
    PlanAsk: "plan" Get "/plan" () Query => PlanMade;

    PoolList: "pool_list" Get "/pools" () Nothing => [PoolInfo];
    PoolCreate: "pool_create" Post "/pools" () Body => Change;
    PoolShow: "pool_show" Get "/pools/{pool}" (pool) Nothing => PoolInfo;
    PoolRemove: "pool_remove" Delete "/pools/{pool}" (pool) Query => Change;
    PoolCheck: "pool_check" Post "/pools/{pool}/check" (pool) Query => CheckReport;
    PoolSet: "pool_set" Patch "/pools/{pool}" (pool) Body => Change;
    PoolRename: "pool_rename" Post "/pools/{pool}/rename" (pool) Body => Change;
    PoolExport: "pool_export" Post "/pools/{pool}/export" (pool) Query => Change;
    PoolImportable: "importable" Get "/imports" () Nothing => [Importable];
    PoolImport: "pool_import" Post "/imports" () Body => Change;

    JobList: "job_list" Get "/jobs" () Query => [JobInfo];
    JobShow: "job_show" Get "/jobs/{job}" (job) Nothing => JobInfo;
    JobStart: "job_start" Post "/pools/{pool}/jobs" (pool) Body => Change;
    JobSteer: "job_steer" Patch "/jobs/{job}" (job) Body => Change;

    DiskList: "disk_list" Get "/disks" () Query => [DiskInfo];
    DiskShow: "disk_show" Get "/disks/{disk}" (disk) Nothing => DiskInfo;
    DiskAdd: "disk_add" Post "/pools/{pool}/disks" (pool) Body => Change;
    DiskRemove: "disk_remove" Delete "/pools/{pool}/disks/{disk}" (pool, disk) Query => Change;
    DiskSet: "disk_set" Patch "/pools/{pool}/disks/{disk}" (pool, disk) Body => Change;
    DiskReplace: "disk_replace" Post "/pools/{pool}/disks/{disk}/replace" (pool, disk) Body => Change;

    VdiskList: "vdisk_list" Get "/vdisks" () Query => [VdiskInfo];
    VdiskCreate: "vdisk_create" Post "/vdisks" () Body => Change;
    VdiskShow: "vdisk_show" Get "/vdisks/{pool}/{vdisk}" (vdisk) Nothing => VdiskInfo;
    VdiskResize: "vdisk_resize" Patch "/vdisks/{pool}/{vdisk}" (vdisk) Body => Change;
    VdiskRemove: "vdisk_remove" Delete "/vdisks/{pool}/{vdisk}" (vdisk) Query => Change;
    VdiskRename: "vdisk_rename" Post "/vdisks/{pool}/{vdisk}/rename" (vdisk) Body => Change;
    VdiskSet: "vdisk_set" Post "/vdisks/{pool}/{vdisk}/set" (vdisk) Body => Change;
    VdiskChange: "vdisk_change" Post "/vdisks/{pool}/{vdisk}/change" (vdisk) Body => Change;
    VdiskClear: "vdisk_clear" Post "/vdisks/{pool}/{vdisk}/clear" (vdisk) Body => Change;
    Explain: "explain" Get "/vdisks/{pool}/{vdisk}/explain" (vdisk) Query => Explanation;
    VdiskMap: "vdisk_map" Get "/vdisks/{pool}/{vdisk}/map" (vdisk) Query => VdiskMapped;
    TierReport: "tier_report" Get "/vdisks/{pool}/{vdisk}/tier" (vdisk) Nothing => TierCurve;
    TierPin: "tier_pin" Post "/vdisks/{pool}/{vdisk}/tier/pin" (vdisk) Body => Change;
    TierOptimize: "tier_optimize" Post "/vdisks/{pool}/{vdisk}/tier/optimize" (vdisk) Body => Change;

    ExportList: "export_list" Get "/exports" () Nothing => [ExportInfo];
    ExportShow: "export_show" Get "/exports/{pool}/{vdisk}" (vdisk) Nothing => Offered;
    ExportAdd: "export_add" Post "/exports" () Body => Change;
    ExportRemove: "export_remove" Delete "/exports/{pool}/{vdisk}" (vdisk) Query => Change;

    MountList: "mount_list" Get "/mounts" () Nothing => [MountInfo];
    MountInfo: "mount_note" Post "/mounts" () Body => Change;
    MountForget: "mount_forget" Delete "/mounts" () Query => Change;
}

/// One thing that weft can be asked, with all there is to say about it.
pub trait Operation: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// What comes back.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// What the OpenAPI document calls it.
    const NAME: &'static str;
    /// The method of its request.
    const METHOD: HttpMethod;
    /// The path of its request, below the version of the API.
    const PATH: &'static str;
    /// Where the fields go that are no part of the path.
    const CARRIED: Carried;

    /// The fields that its path is made of.
    const FIELDS: &'static [&'static str];

    /// The parts of its path, in their order.
    fn parts(&self) -> Vec<String>;

    /// The fields that its path is made of, each as one word.
    fn words(&self) -> Vec<String>;

    /// Takes the parts of its path, in their order.
    fn place(&mut self, parts: Vec<String>) -> Result<(), BadValue>;

    /// What the OpenAPI document says of its request and of its answer.
    fn described() -> Described;
}

/// Where the fields of an operation go that are no part of its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carried {
    /// There are none.
    Nothing,
    /// Into the query.
    Query,
    /// Into the body, as JSON.
    Body,
}

/// What the OpenAPI document says of an operation.
pub struct Described {
    /// The parameters of its query.
    pub query: Vec<Parameter>,
    /// The schema of its body.
    pub body: Option<RefOr<Schema>>,
    /// The schema of its answer.
    pub answer: RefOr<Schema>,
    /// The schemas that those refer to.
    pub schemas: Vec<(String, RefOr<Schema>)>,
}

/// Does operations, or asks who does them.
pub trait Perform<O: Operation> {
    /// Does one, and answers when it is done.
    fn perform(&self, operation: &O) -> Answer<O::Answer>;
}

/// Looks at every operation of the list.
pub trait Visit {
    /// Looks at one.
    fn visit<O: Operation>(&mut self);
}

/// Looks at every operation of the list together with who performs them.
pub trait VisitFor<W> {
    /// Looks at one.
    fn visit<O: Operation>(&mut self)
    where
        W: Perform<O>;
}

/// An operation that people can type, and the rules of its typing.
pub trait Verb: Operation<Answer: Text> {
    /// The words it is typed with.
    fn verb(&self) -> &'static str;

    /// Makes plain what was typed: paths are absolute from now on, and what no daemon would take is refused. `weft`
    /// says what a rule must know of the pools.
    fn typed(self, weft: &impl Weft) -> Answer<Self> {
        let _ = weft;
        Ok(self)
    }

    /// Completes an answer with what the machine tells who types this: the daemon has fewer rights, and must not wait.
    fn completed(answer: Self::Answer) -> Self::Answer {
        answer
    }

    /// How to change what it changes; `None` when it changes nothing.
    fn changing(&mut self) -> Option<&mut Changing> {
        None
    }

    /// What a person must agree to first.
    fn harm(&self) -> Option<Harm> {
        None
    }

    /// Whether to wait for the job that it starts.
    fn waits(&self) -> bool {
        false
    }

    /// What its arguments say that are not called like the field they fill.
    fn beside(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
}

/// What every changing operation takes. Over the socket it is `dry_run` alone.
#[derive(Args, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(transparent)]
pub struct Changing {
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask before destroying data
    #[arg(long, short)]
    #[serde(skip)]
    pub yes: bool,
}

impl Changing {
    /// Only says what would change.
    pub const DRY: Changing = Changing { dry_run: true, yes: false };

    /// Whether it is carried out.
    pub fn run(self) -> Run {
        if self.dry_run { Run::Dry } else { Run::Real }
    }
}

/// Whether a change is made, or only planned: both refuse the same, by the same plan of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// Change nothing.
    Dry,
    /// Make the change.
    Real,
}

/// What a person must agree to; `%` stands for what it is about.
#[derive(Clone, Copy, Debug)]
pub struct Harm {
    /// What is destroyed, as a sentence begins.
    pub what: &'static str,
    /// What the person is asked.
    pub question: &'static str,
    /// What became of it without an agreement.
    pub otherwise: &'static str,
}

impl Harm {
    /// Something goes with all it holds.
    pub const REMOVAL: Harm = Harm {
        what: "removing % destroys what it holds",
        question: "Remove %? What it holds is gone for good.",
        otherwise: "was kept",
    };
}

/// Does what was typed, whatever it was.
pub trait Doer {
    /// What comes of it.
    type Done;

    /// Does one operation.
    fn operate<V: Verb>(&mut self, verb: V) -> Self::Done;
}

/// A field of an operation that is a part of its path.
trait InPath: Sized {
    /// What stands in the path.
    fn parts(&self) -> Vec<String>;

    /// Takes what stands there.
    fn read(parts: &mut impl Iterator<Item = String>) -> Result<Self, BadValue>;
}

impl InPath for String {
    fn parts(&self) -> Vec<String> {
        vec![self.clone()]
    }

    fn read(parts: &mut impl Iterator<Item = String>) -> Result<String, BadValue> {
        Ok(parts.next().unwrap_or_default())
    }
}

impl InPath for VdiskName {
    fn parts(&self) -> Vec<String> {
        vec![self.pool.clone(), self.vdisk.clone()]
    }

    fn read(parts: &mut impl Iterator<Item = String>) -> Result<VdiskName, BadValue> {
        let (pool, vdisk) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        format!("{pool}/{vdisk}").parse()
    }
}

/// The directory that relative paths are typed from.
fn here() -> Answer<PathBuf> {
    std::env::current_dir()
        .map_err(|error| ApiError::new(Kind::NotPossible, format!("there is no working directory: {error}")))
}

/// The daemon works in another directory: paths go to it absolute.
pub fn absolute(path: &Path) -> Answer<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| ApiError::new(Kind::InvalidInput, format!("`{}` is no path: {error}", path.display())))
}

/// A type that the document refers to by its name, with all it refers to.
fn named<T: ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) -> RefOr<Schema> {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
    Ref::from_schema_name(T::name()).into()
}

/// Implements [`Operation`] for each line, and [`Weft`], [`every`] and [`every_for`] over all of them.
macro_rules! operations {
    ($(
        $operation:ident: $name:literal $method:ident $path:literal ($($part:ident),*) $carried:ident => $answer:tt;
    )*) => {
        $(impl Operation for $operation {
            type Answer = answer!($answer);
            const NAME: &'static str = $name;
            const METHOD: HttpMethod = HttpMethod::$method;
            const PATH: &'static str = $path;
            const CARRIED: Carried = Carried::$carried;

            const FIELDS: &'static [&'static str] = &[$(stringify!($part)),*];

            fn words(&self) -> Vec<String> {
                vec![$(self.$part.to_string()),*]
            }

            fn parts(&self) -> Vec<String> {
                Vec::<Vec<String>>::from([$(self.$part.parts()),*]).concat()
            }

            fn place(&mut self, parts: Vec<String>) -> Result<(), BadValue> {
                #[allow(unused_mut, unused_variables)]
                let mut parts = parts.into_iter();
                $(self.$part = InPath::read(&mut parts)?;)*
                Ok(())
            }

            fn described() -> Described {
                let mut schemas = Vec::new();
                let (query, body) = request!($carried $operation, schemas);
                let answer = answer!($answer, schemas);
                Described { query, body, answer, schemas }
            }
        })*

        /// Performs every operation there is.
        pub trait Weft: Send + Sync + 'static $(+ Perform<$operation>)* {}

        impl<W> Weft for W where W: Send + Sync + 'static $(+ Perform<$operation>)* {}

        /// Shows every operation to `visitor`.
        pub fn every(visitor: &mut impl Visit) {
            $(visitor.visit::<$operation>();)*
        }

        /// Shows every operation to `visitor`, as one that `W` performs.
        pub fn every_for<W: Weft>(visitor: &mut impl VisitFor<W>) {
            $(visitor.visit::<$operation>();)*
        }
    };
}

/// Implements [`Verb`]: the words of the operation, the field that says how to change it when it does, and its rules.
macro_rules! verb {
    ($operation:ident: $words:literal $(, $changing:ident)? $({ $($rules:tt)* })?) => {
        impl $crate::ops::Verb for $operation {
            fn verb(&self) -> &'static str {
                $words
            }

            $(fn changing(&mut self) -> Option<&mut $crate::ops::Changing> {
                Some(&mut self.$changing)
            })?

            $($($rules)*)?
        }
    };
}

/// The type of an answer, or its schema: `[T]` is a list.
macro_rules! answer {
    ([$item:ident]) => { Vec<$item> };
    ($one:ident) => { $one };
    ([$item:ident], $schemas:ident) => { ArrayBuilder::new().items(named::<$item>(&mut $schemas)).into() };
    ($one:ident, $schemas:ident) => { named::<$one>(&mut $schemas) };
}

/// The query and the body of a request, as the document has them.
macro_rules! request {
    (Nothing $operation:ident, $schemas:ident) => {
        (Vec::new(), None)
    };
    (Query $operation:ident, $schemas:ident) => {
        (<$operation as IntoParams>::into_params(|| Some(ParameterIn::Query)), None)
    };
    (Body $operation:ident, $schemas:ident) => {
        (Vec::new(), Some(named::<$operation>(&mut $schemas)))
    };
}

use {answer, operations, request, verb};
