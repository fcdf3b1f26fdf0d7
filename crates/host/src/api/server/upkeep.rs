//! The routes of the life of a pool: its settings, its jobs, its members, its leaving and coming back.

use super::{Asked, Named, Reply, Shared, Told, Word, answer};
use crate::api::Control;
use crate::api::error::{ApiError, Kind};
use crate::api::job::{JobInfo, JobStart, JobSteer};
use crate::api::pool::{ChangeQuery, PoolQuery};
use crate::api::upkeep::{DiskAdd, DiskRemove, DiskReplace, DiskSet, Importable, PoolImport, PoolSet, Rename};
use crate::api::watch::Change;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) fn routes() -> OpenApiRouter<Arc<dyn Control>> {
    OpenApiRouter::new()
        .routes(routes!(pool_set))
        .routes(routes!(pool_rename))
        .routes(routes!(pool_export))
        .routes(routes!(importable, pool_import))
        .routes(routes!(job_start))
        .routes(routes!(job_list))
        .routes(routes!(job_show, job_steer))
        .routes(routes!(disk_add))
        .routes(routes!(disk_set, disk_remove))
        .routes(routes!(disk_replace))
        .routes(routes!(vdisk_rename))
        .routes(routes!(vdisk_clear))
}

#[utoipa::path(patch, path = "/pools/{pool}", params(("pool" = String, Path)), request_body = PoolSet,
    responses((status = OK, body = Change)))]
async fn pool_set(State(control): Shared, Word(pool): Word, Told(request): Told<PoolSet>) -> Reply<Change> {
    answer(control, move |control| control.pool_set(&pool, &request)).await
}

#[utoipa::path(post, path = "/pools/{pool}/rename", params(("pool" = String, Path)), request_body = Rename,
    responses((status = OK, body = Change)))]
async fn pool_rename(State(control): Shared, Word(pool): Word, Told(request): Told<Rename>) -> Reply<Change> {
    answer(control, move |control| control.pool_rename(&pool, &request)).await
}

#[utoipa::path(post, path = "/pools/{pool}/export", params(("pool" = String, Path), ChangeQuery),
    responses((status = OK, body = Change)))]
async fn pool_export(State(control): Shared, Word(pool): Word, Asked(how): Asked<ChangeQuery>) -> Reply<Change> {
    answer(control, move |control| control.pool_export(&pool, how)).await
}

#[utoipa::path(get, path = "/imports", responses((status = OK, body = Vec<Importable>)))]
async fn importable(State(control): Shared) -> Reply<Vec<Importable>> {
    answer(control, |control| control.importable()).await
}

#[utoipa::path(post, path = "/imports", request_body = PoolImport, responses((status = OK, body = Change)))]
async fn pool_import(State(control): Shared, Told(request): Told<PoolImport>) -> Reply<Change> {
    answer(control, move |control| control.pool_import(&request)).await
}

#[utoipa::path(post, path = "/pools/{pool}/jobs", params(("pool" = String, Path)), request_body = JobStart,
    responses((status = OK, body = Change)))]
async fn job_start(State(control): Shared, Word(pool): Word, Told(request): Told<JobStart>) -> Reply<Change> {
    answer(control, move |control| control.job_start(&pool, request)).await
}

#[utoipa::path(get, path = "/jobs", params(PoolQuery), responses((status = OK, body = Vec<JobInfo>)))]
async fn job_list(State(control): Shared, Asked(query): Asked<PoolQuery>) -> Reply<Vec<JobInfo>> {
    answer(control, move |control| control.job_list(&query)).await
}

#[utoipa::path(get, path = "/jobs/{job}", params(("job" = String, Path)), responses((status = OK, body = JobInfo)))]
async fn job_show(State(control): Shared, Word(job): Word) -> Reply<JobInfo> {
    answer(control, move |control| control.job_show(&job)).await
}

#[utoipa::path(patch, path = "/jobs/{job}", params(("job" = String, Path)), request_body = JobSteer,
    responses((status = OK, body = Change)))]
async fn job_steer(State(control): Shared, Word(job): Word, Told(request): Told<JobSteer>) -> Reply<Change> {
    answer(control, move |control| control.job_steer(&job, request)).await
}

#[utoipa::path(post, path = "/pools/{pool}/disks", params(("pool" = String, Path)), request_body = DiskAdd,
    responses((status = OK, body = Change)))]
async fn disk_add(State(control): Shared, Word(pool): Word, Told(request): Told<DiskAdd>) -> Reply<Change> {
    answer(control, move |control| control.disk_add(&pool, &request)).await
}

#[utoipa::path(delete, path = "/pools/{pool}/disks/{disk}",
    params(("pool" = String, Path), ("disk" = String, Path), DiskRemove), responses((status = OK, body = Change)))]
async fn disk_remove(State(control): Shared, member: Member, Asked(how): Asked<DiskRemove>) -> Reply<Change> {
    answer(control, move |control| control.disk_remove(&member.pool, &member.disk, how)).await
}

#[utoipa::path(patch, path = "/pools/{pool}/disks/{disk}", params(("pool" = String, Path), ("disk" = String, Path)),
    request_body = DiskSet, responses((status = OK, body = Change)))]
async fn disk_set(State(control): Shared, member: Member, Told(request): Told<DiskSet>) -> Reply<Change> {
    answer(control, move |control| control.disk_set(&member.pool, &member.disk, &request)).await
}

#[utoipa::path(post, path = "/pools/{pool}/disks/{disk}/replace",
    params(("pool" = String, Path), ("disk" = String, Path)), request_body = DiskReplace,
    responses((status = OK, body = Change)))]
async fn disk_replace(State(control): Shared, member: Member, Told(request): Told<DiskReplace>) -> Reply<Change> {
    answer(control, move |control| control.disk_replace(&member.pool, &member.disk, &request)).await
}

#[utoipa::path(post, path = "/vdisks/{pool}/{vdisk}/rename",
    params(("pool" = String, Path), ("vdisk" = String, Path)), request_body = Rename,
    responses((status = OK, body = Change)))]
async fn vdisk_rename(State(control): Shared, Named(name): Named, Told(request): Told<Rename>) -> Reply<Change> {
    answer(control, move |control| control.vdisk_rename(&name, &request)).await
}

#[utoipa::path(post, path = "/vdisks/{pool}/{vdisk}/clear",
    params(("pool" = String, Path), ("vdisk" = String, Path)), request_body = ChangeQuery,
    responses((status = OK, body = Change)))]
async fn vdisk_clear(State(control): Shared, Named(name): Named, Told(how): Told<ChangeQuery>) -> Reply<Change> {
    answer(control, move |control| control.vdisk_clear(&name, how)).await
}

/// The disk of a pool that a path names, refused in the error form.
struct Member {
    pool: String,
    disk: String,
}

impl<S: Send + Sync> FromRequestParts<S> for Member {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Member, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, state).await {
            Ok(Path((pool, disk))) => Ok(Member { pool, disk }),
            Err(refused) => Err(ApiError::new(Kind::InvalidInput, refused.body_text())),
        }
    }
}
