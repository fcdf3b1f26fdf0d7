use super::*;
use crate::disks::Class;

const TB: u64 = 1_000_000_000_000;

fn disks(count: usize, size: u64) -> Vec<PlannedDisk> {
    vec![PlannedDisk { size, class: Class::Hdd7200 }; count]
}

fn question(disks: Vec<PlannedDisk>) -> Question {
    Question {
        disks,
        grow: Vec::new(),
        failures: 1,
        workload: Workload::Media,
        jobs: Vec::new(),
        exact: false,
        failures_percent: None,
        replace_hours: 72.0,
    }
}

#[test]
fn four_bays_get_single_parity_over_all_of_them_for_media_and_mirrors_for_databases() {
    let media = plan(&question(disks(4, 4 * TB))).unwrap();
    assert_eq!(media.best[0].layout.name, "single parity, 4 columns");
    assert!((0.73..0.75).contains(&media.best[0].layout.efficiency), "{}", media.best[0].layout.efficiency);
    let database = plan(&Question { workload: Workload::Database, ..question(disks(4, 4 * TB)) }).unwrap();
    assert!(database.best[0].layout.name.contains("mirror"), "{}", database.best[0].layout.name);
}

#[test]
fn more_failures_than_asked_for_are_never_fewer() {
    let answer = plan(&Question { failures: 2, ..question(disks(10, 4 * TB)) }).unwrap();
    assert!(answer.layouts.iter().all(|layout| layout.failures == 2));
    assert!(answer.best.iter().any(|choice| choice.layout.name.starts_with("dual parity")));
}

#[test]
fn too_few_disks_are_refused_with_what_would_work() {
    let alone = plan(&question(disks(1, 4 * TB))).unwrap_err();
    assert!(alone.to_string().contains("at least 2, or --failures 0"), "{alone}");
    let two = plan(&Question { failures: 2, ..question(disks(2, 4 * TB)) }).unwrap_err();
    assert!(two.to_string().contains("at least 3, or --failures 1"), "{two}");
    assert!(plan(&question(Vec::new())).is_err() && plan(&question(disks(257, TB))).is_err());
    assert!(plan(&question(disks(4, 1 << 20))).is_err());
}

#[test]
fn unequal_disks_say_what_is_stranded_and_growing_frees_it() {
    let mut mixed = disks(3, 2 * TB);
    mixed.extend(disks(1, 8 * TB));
    let answer = plan(&question(mixed)).unwrap();
    let wide = answer.layouts.iter().find(|layout| layout.name == "single parity, 4 columns").expect("it makes sense");
    assert!(wide.stranded > 5 * TB && wide.stranded_why.as_ref().is_some_and(|why| why.contains("d3")), "{wide:?}");
    let growth = &answer.best[0].growth;
    assert!(growth.windows(2).all(|pair| pair[0].usable <= pair[1].usable && pair[0].disks + 1 == pair[1].disks));
}

#[test]
fn every_listed_layout_has_room_and_a_figure_for_everything_and_the_best_are_of_different_kinds() {
    for count in 2..=24 {
        for workload in [Workload::Media, Workload::Vm, Workload::Database, Workload::Backup, Workload::Mixed] {
            let answer = plan(&Question { workload, ..question(disks(count, 4 * TB)) }).unwrap();
            let sound = |plan: &LayoutPlan| {
                plan.usable > 0
                    && plan.efficiency < 1.0
                    && plan.write_mb_s > 0.0
                    && plan.random_writes > 0.0
                    && (0.0..1.0).contains(&plan.loss_per_year)
            };
            assert!(answer.layouts.iter().all(sound), "{answer:?}");
            let mut kinds: Vec<&str> =
                answer.best.iter().map(|choice| choice.layout.name.split(',').next().unwrap()).collect();
            kinds.dedup();
            assert_eq!(kinds.len(), answer.best.len());
            assert_eq!(plan(&Question { workload, ..question(disks(count, 4 * TB)) }).unwrap(), answer);
        }
    }
}

#[test]
fn the_jobs_of_a_file_decide_and_are_told_what_they_get() {
    let own = |text: &str| {
        let jobs = crate::jobs::Job::read(text).unwrap();
        plan(&Question { workload: Workload::Own, jobs, ..question(disks(8, 4 * TB)) }).unwrap()
    };
    let camera = own("[camera]\nrw=write\nbs=1m\nsize=100g\n");
    assert!(camera.best[0].layout.name.contains("parity, 8 columns"), "{}", camera.best[0].layout.name);
    let [job] = &camera.best[0].jobs[..] else { panic!("one job was asked about") };
    assert!((job.mb_s - camera.best[0].layout.write_mb_s).abs() < 0.01, "{job:?}");
    let pages =
        own("[global]\nbs=4k\nruntime=60\ntime_based\n[pages]\nrw=randrw\niodepth=32\n[one]\nstonewall\nrw=randread\n");
    assert!(pages.best[0].layout.name.contains("mirror"), "{}", pages.best[0].layout.name);
    let [many, one] = &pages.best[0].jobs[..] else { panic!("two jobs were asked about") };
    // One request at a time keeps one disk busy.
    assert!((50.0..130.0).contains(&one.per_second), "{one:?}");
    assert!(many.per_second > one.per_second && many.per_second < 2.0 * pages.best[0].layout.random_writes, "{many:?}");
    let flushed = own("[log]\nrw=write\nbs=64k\nfsync=1\nsize=1g\n");
    assert!((30.0..41.0).contains(&flushed.best[0].jobs[0].per_second), "{:?}", flushed.best[0].jobs);
    let without = plan(&Question { workload: Workload::Own, ..question(disks(8, 4 * TB)) });
    assert!(without.unwrap_err().to_string().contains("no jobs"));
}

#[test]
fn a_picture_has_a_line_for_each_of_the_best() {
    let answer = plan(&question(disks(6, 4 * TB))).unwrap();
    let svg = crate::picture::svg(&answer);
    assert_eq!(svg.matches("<polyline").count(), 2 * answer.best.len());
}
