# Desks without a fleet: a group that begins with none, heals what dies, and grows when somebody says so. All of its desks have one token.

resource "random_password" "token" {
  count   = var.group ? 1 : 0
  length  = 43
  special = false
}

data "google_compute_image" "golden" {
  count  = var.group ? 1 : 0
  family = var.image_family
}

resource "google_compute_health_check" "desk" {
  count               = var.group ? 1 : 0
  name                = "${var.name}-desk"
  description         = "A desk says 200 on /health when its session is up."
  check_interval_sec  = 10
  timeout_sec         = 5
  healthy_threshold   = 1
  unhealthy_threshold = 3

  http_health_check {
    port         = 5000
    request_path = "/health"
  }
}

resource "google_compute_instance_template" "desk" {
  count        = var.group ? 1 : 0
  name_prefix  = "${var.name}-desk-"
  machine_type = var.machine_type
  tags         = [local.desk_tag]

  labels = {
    hotdesk-group = var.name
  }

  disk {
    boot         = true
    auto_delete  = true
    source_image = data.google_compute_image.golden[0].self_link
    disk_size_gb = var.disk_gb
    disk_type    = "pd-balanced"
  }

  # No access_config: no address on the internet.
  network_interface {
    subnetwork = google_compute_subnetwork.desks.id
  }

  # No service_account: whatever runs in a desk could act as it.

  metadata = {
    hotdesk-token          = random_password.token[0].result
    block-project-ssh-keys = "TRUE"
    serial-port-enable     = "FALSE"
  }

  scheduling {
    provisioning_model          = var.spot ? "SPOT" : "STANDARD"
    preemptible                 = var.spot
    automatic_restart           = !var.spot
    on_host_maintenance         = var.spot ? "TERMINATE" : "MIGRATE"
    instance_termination_action = var.spot ? "STOP" : null
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_compute_region_instance_group_manager" "desks" {
  count                     = var.group ? 1 : 0
  name                      = "${var.name}-desks"
  base_instance_name        = "${var.name}-desk"
  region                    = var.region
  distribution_policy_zones = var.zones
  target_size               = 0

  version {
    instance_template = google_compute_instance_template.desk[0].self_link
  }

  named_port {
    name = "desk"
    port = 5000
  }

  auto_healing_policies {
    health_check      = google_compute_health_check.desk[0].id
    initial_delay_sec = 120
  }

  update_policy {
    type                  = "OPPORTUNISTIC"
    minimal_action        = "REPLACE"
    max_surge_fixed       = length(var.zones)
    max_unavailable_fixed = 0
  }

  # How many there are is somebody's decision of the day, not of this file.
  lifecycle {
    ignore_changes = [target_size]
  }
}
